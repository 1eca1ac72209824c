"""How long a drain waits and for what, and that it leaves no shard out: a person or a script waits for its end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from relaying import Relays, add, count_waiting
from sqlalchemy import Engine

from committed_records import committed_values
from semel.outbox.relay import CALL_SECONDS_MIN, DRAIN_WAIT_SECONDS, TIMEOUT_SECONDS
from semel.outbox.shard import Patience, PatienceOver, Stopped
from semel.publish import LoginRefused, Publisher


def test_a_drain_does_not_wait_for_another_password() -> None:
    """Nobody is there to change it. A relay that serves waits: an operator does."""
    stopping = threading.Event()
    # Who waits notices this at once.
    stopping.set()
    refused = LoginRefused("the password is wrong")
    with pytest.raises(PatienceOver, match="the password is wrong"):
        Patience(stopping, seconds_max=DRAIN_WAIT_SECONDS).wait_for_login(refused)
    with pytest.raises(Stopped):
        Patience(stopping).wait_for_login(refused)


def test_a_drain_empties_each_shard(engine: Engine, topic: str, bootstrap: str, relays: Relays) -> None:
    keys = [f"aggregate {number}" for number in range(8)]
    for key in keys:
        add(engine, topic, key, key=key)
    assert relays.drain(shards=4) == 8
    assert sorted(committed_values(bootstrap, topic)) == [key.encode() for key in keys]
    assert count_waiting(engine) == 0


@pytest.mark.parametrize(
    ("wait_seconds", "call_seconds"),
    [
        (DRAIN_WAIT_SECONDS, TIMEOUT_SECONDS),
        (CALL_SECONDS_MIN + 1, CALL_SECONDS_MIN + 1),
        # A call that could not succeed would make a drain of a cluster that is well fail.
        (0.0, CALL_SECONDS_MIN),
    ],
)
def test_no_call_to_the_brokers_takes_longer_than_the_drain_may_wait(
    engine: Engine, topic: str, relays: Relays, wait_seconds: float, call_seconds: float
) -> None:
    seconds = []

    class Noted(Publisher):
        def __init__(self, *address: str, timeout_seconds: float, **options: Any) -> None:
            seconds.append(timeout_seconds)
            super().__init__(*address, timeout_seconds=TIMEOUT_SECONDS, **options)

    add(engine, topic, "first")
    assert relays.make(publisher=Noted).drain(wait_seconds) == 1
    assert seconds == [call_seconds]
