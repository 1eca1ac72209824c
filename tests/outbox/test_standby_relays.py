"""Two relays of one outbox: one has the lease, the other one stands by; and what a probe is told of each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from relaying import Relays, add, count_batches
from sqlalchemy import Engine, update

from committed_records import committed_values
from eventually import eventually
from semel import outbox
from semel.outbox import Relay
from semel.outbox.tables import shards
from semel.testing.clock import Clock


def test_a_relay_that_stands_by_begins_when_the_lease_is_given_up_or_over(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    # Later than this process has begun: before that, no relay of it can have the lease.
    clock = Clock(10**15)
    first = relays.run(stands_by=True, clock=clock)
    assert eventually(lambda: first.relay.why_not_ready(60) == "")
    # By this clock it renews its lease once, as one that hangs later.
    second = relays.run(stands_by=True, clock=clock, lease_ms=10**9)
    assert eventually(lambda: second.relay.role == "standby")
    assert second.relay.why_not_ready(60) == ""
    first.stop()
    assert eventually(lambda: second.relay._leased_at_seconds > 0)
    third = relays.run(stands_by=True, clock=clock)
    assert eventually(lambda: third.relay.role == "standby")
    clock.ms += 10**9
    assert eventually(lambda: third.relay.role == "active" and third.relay.why_not_ready(60) == "")
    add(engine, topic, "first")
    assert eventually(lambda: count_batches(engine) == 1)
    second.end()
    assert str(second.error).startswith("shard 0 of the outbox was taken over")
    assert committed_values(bootstrap, topic) == [b"first"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_relay_says_why_it_is_not_ready(engine: Engine, topic: str, faulty: Any, relays: Relays, url: str) -> None:
    relay = relays.make(timeout_seconds=1)
    assert relay.why_not_ready(60) == "it has not taken over all shards yet"
    running = relays.run(timeout_seconds=1)
    assert eventually(lambda: running.relay.why_not_ready(60) == "")
    faulty.kill()
    add(engine, topic, "first")
    assert eventually(lambda: running.relay.why_not_ready(60).startswith("waiting for the brokers: "))
    faulty.restart()
    assert eventually(lambda: running.relay.why_not_ready(60) == "")


def test_what_waits_for_a_person_does_not_make_a_relay_late(engine: Engine, topic: str, relays: Relays) -> None:
    clock = Clock()
    add(engine, topic, "x" * 2_000_000, "behind it")
    running = relays.run(clock=clock)

    def refused() -> int:
        with engine.connect() as connection:
            return outbox.status(connection).quarantined

    assert eventually(lambda: refused() == 1)
    clock.ms = 10**15
    assert running.relay.why_not_ready(60) == ""
    add(engine, topic, "of another aggregate", key="other")
    assert eventually(lambda: count_batches(engine) > 0)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_relay_that_died_on_this_machine_keeps_nobody_waiting(engine: Engine, relays: Relays, url: str) -> None:
    """In a container, its successor may have its number."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    clock = Clock(10**15)
    for number, since_ms in ((ended.pid, clock.ms), (os.getpid(), 0)):
        dead = relays.make(clock=clock, lease_ms=10**9)
        dead._owner_name = f"process {number} on {socket.gethostname()}"
        dead._prepared(stands_by=True)
        with engine.begin() as connection:
            connection.execute(update(shards).values(owned_since_ms=since_ms))
        following = relays.run(stands_by=True, clock=clock)
        assert eventually(partial(_is_active, following.relay))
        following.stop()


def _is_active(relay: Relay) -> bool:
    return relay.role == "active" and relay.why_not_ready(60) == ""
