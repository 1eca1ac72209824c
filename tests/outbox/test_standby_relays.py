"""Two relays of one outbox: one has the lease, the other one stands by; and what a probe is told of each."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from relaying import Relays, add, count_batches
from sqlalchemy import Engine

from committed_records import committed_values
from eventually import eventually
from semel import outbox
from semel.outbox import Relay, processes
from semel.testing.clock import Clock


def test_a_relay_that_stands_by_begins_when_the_lease_is_given_up_or_over(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
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
    clock = Clock(10**15)
    dead = relays.make(clock=clock, lease_ms=10**9)
    dead._owner_name = _owner(_number_of_nobody())
    dead._prepared(stands_by=True)
    following = relays.run(stands_by=True, clock=clock)
    assert eventually(partial(_is_active, following.relay))


def test_a_process_is_dead_only_where_its_number_is_seen_and_is_no_longer_its() -> None:
    """Containers may share a host name, and count their processes each for itself: there, relays fenced each other for
    ever. In one container, each life of a program may have the same number."""
    nobody = _number_of_nobody()
    assert processes.is_dead(_owner(nobody))
    assert processes.is_dead(_owner(os.getpid(), began="1"))
    assert not processes.is_dead(processes.own_name())
    assert not processes.is_dead(_owner(nobody, place="0123456789abcdef"))
    assert not processes.is_dead(_owner(os.getpid(), place="0123456789abcdef", began="1"))
    assert not processes.is_dead(f"process {nobody} on {socket.gethostname()}")


def _number_of_nobody() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    return ended.pid


def _owner(number: int, **changes: str) -> str:
    match = re.fullmatch(r"process \d+ on (?P<host>.*)#(?P<place>.*)-(?P<began>.*)", processes.own_name())
    assert match is not None
    return "process {} on {host}#{place}-{began}".format(number, **match.groupdict() | changes)


def _is_active(relay: Relay) -> bool:
    return relay.role == "active" and relay.why_not_ready(60) == ""
