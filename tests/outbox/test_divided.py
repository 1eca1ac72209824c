"""A relay into a log that sends the messages of some topics through functions: each message goes one way, and none is
lost; and what is for a function never goes into a log."""

from __future__ import annotations

from typing import Any

import pytest
from relaying import Killed, Relays, add, count_waiting
from sqlalchemy import Engine

from committed_records import committed_values
from semel import outbox
from semel.outbox import Delivery, MessageRefused, OutOfStep, RelayFailed, RelayRefused, quarantine
from semel.outbox.messages import SEND_PREFIX
from semel.publish import Publisher

TASKS = f"{SEND_PREFIX}tasks"


def test_one_relay_sends_what_is_for_a_function_and_publishes_the_rest(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    got: list[Delivery] = []
    add(engine, topic, "a")
    add(engine, TASKS, "1", "2")
    add(engine, topic, "b")
    assert relays.drain(send={TASKS: got.append}) == 4
    add(engine, TASKS, "3")
    assert relays.drain(send={TASKS: got.append}) == 1
    assert [delivery.value for delivery in got] == [b"1", b"2", b"3"]
    assert len({delivery.id for delivery in got}) == 3
    assert committed_values(bootstrap, topic) == [b"a", b"b"]


def test_what_is_for_a_function_stops_a_relay_that_has_none_and_nothing_is_lost(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    got: list[Delivery] = []
    add(engine, topic, "a")
    add(engine, TASKS, "1")
    for _ in range(2):
        with pytest.raises(RelayFailed, match=f"{TASKS}.*did not publish their batch.*Run Relay"):
            relays.drain()
    assert count_waiting(engine) == 2
    assert relays.drain(send={TASKS: got.append}) == 2
    assert (len(got), committed_values(bootstrap, topic)) == (1, [b"a"])


@pytest.mark.parametrize("in_log", [True, False])
def test_a_relay_that_dies_loses_nothing_and_publishes_nothing_twice(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, in_log: bool
) -> None:
    """A message is sent again, under the same id, unless the log has the rest of its batch."""
    got: list[Delivery] = []

    class Dying(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            if in_log:
                super().publish(number, *records)
            raise Killed

    add(engine, TASKS, "1")
    add(engine, topic, "a")
    with pytest.raises(Killed):
        relays.drain(publisher=Dying, send={TASKS: got.append})
    assert [delivery.value for delivery in got] == [b"1"]
    relays.drain(send={TASKS: got.append})
    assert [delivery.value for delivery in got] == [b"1"] * (1 if in_log else 2)
    assert len({delivery.id for delivery in got}) == 1
    assert committed_values(bootstrap, topic) == [b"a"]


def test_either_side_refuses_a_message_without_keeping_others_back(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    got: list[Any] = []

    def send(delivery: Delivery) -> None:
        if delivery.value == b"2":
            raise MessageRefused("no such task")
        got.append(delivery.value)

    for number in range(4):
        add(engine, TASKS, str(number), key=f"t{number}")
        add(engine, topic, f"e{number}" if number != 1 else "x" * 2_000_000, key=f"e{number}")
    assert relays.drain(send={TASKS: send}) == 6
    assert sorted(set(got)) == [b"0", b"1", b"3"]
    assert sorted(committed_values(bootstrap, topic)) == [b"e0", b"e2", b"e3"]  # type: ignore[type-var]
    with engine.connect() as connection:
        refused = quarantine.refused_messages(connection)
    assert {one.topic for one in refused} == {topic, TASKS}


def test_functions_for_topics_stand_beside_a_log(engine: Engine, relays: Relays) -> None:
    for options, says in (
        ({"send": {"no topic": print}}, "is no topic"),
        ({"send": {TASKS: None}}, "a function"),
        ({"send": print}, "kafka and send="),
    ):
        with pytest.raises(RelayRefused, match=says):
            relays.make(**options)
    with pytest.raises(RelayRefused, match="kafka or send"):
        outbox.Relay(engine, send={TASKS: print})


def test_an_outbox_that_was_sent_through_a_function_alone_is_told_from_one_of_another_cluster(
    engine: Engine, topic: str, relays: Relays
) -> None:
    add(engine, topic, "a")
    relays.drain()
    add(engine, topic, "b")
    outbox.Relay(engine, send=lambda _: None).drain()
    with pytest.raises(OutOfStep, match="only sends through a function"):
        relays.drain()
