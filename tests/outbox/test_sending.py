"""A relay that sends through a function: each message at least once, with the same id each time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from semel import outbox
from semel.outbox import Delivery, MessageRefused, Relay, RelayRefused, quarantine


class Other:
    """The other side: it keeps what it gets, and `fails` may raise before or after that."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.before: Callable[[Delivery], None] = lambda delivery: None
        self.after: Callable[[Delivery], None] = lambda delivery: None

    def __call__(self, delivery: Delivery) -> None:
        self.before(delivery)
        self.got.append(delivery)
        self.after(delivery)

    @property
    def values(self) -> list[bytes | None]:
        return [delivery.value for delivery in self.got]


class Died(BaseException):
    """The relay was killed here."""


def add(engine: Engine, *values: str) -> None:
    with engine.begin() as connection:
        for value in values:
            outbox.add(connection, "tasks", key=value, value=value, headers={"n": value})


def test_what_commits_is_sent_in_order_with_an_id_of_its_own(engine: Engine) -> None:
    other = Other()
    add(engine, "a", "b")
    with engine.connect() as connection, connection.begin() as transaction:
        outbox.add(connection, "tasks", value="never")
        transaction.rollback()
    assert Relay(engine, send=other).drain() == 2
    add(engine, "c")
    assert Relay(engine, send=other).drain() == 1
    assert other.values == [b"a", b"b", b"c"]
    assert len({delivery.id for delivery in other.got}) == 3
    first = other.got[0]
    assert (first.topic, first.key, first.headers) == ("tasks", b"a", (("n", b"a"),))


def test_a_wait_for_the_other_side_sends_nothing_twice(engine: Engine) -> None:
    other, away = Other(), ["once", "twice"]

    def before(delivery: Delivery) -> None:
        if delivery.value == b"b" and away:
            raise ConnectionError(away.pop())

    other.before = before
    add(engine, "a", "b", "c")
    relay = Relay(engine, send=other)
    assert relay.drain() == 3
    assert other.values == [b"a", b"b", b"c"]


@pytest.mark.parametrize("value", [b"a", b"b", b"c"])
def test_a_relay_that_dies_leaves_nothing_out_and_sends_again_under_the_same_ids(engine: Engine, value: bytes) -> None:
    other = Other()

    def die(delivery: Delivery) -> None:
        if delivery.value == value:
            raise Died

    other.after = die
    add(engine, "a", "b", "c")
    with pytest.raises(Died):
        Relay(engine, send=other).drain()
    other.after = lambda delivery: None
    Relay(engine, send=other).drain()
    ids: dict[Any, set[str]] = {}
    for delivery in other.got:
        ids.setdefault(delivery.value, set()).add(delivery.id)
    assert list(ids) == [b"a", b"b", b"c"]
    assert all(len(one) == 1 for one in ids.values())


def test_a_send_that_ends_its_thread_ends_the_relay(engine: Engine) -> None:
    def cancelled(delivery: Delivery) -> None:
        raise asyncio.CancelledError

    add(engine, "a")
    relay = Relay(engine, send=cancelled)
    watch = threading.Timer(20, relay.stop)
    watch.start()
    with pytest.raises(asyncio.CancelledError):
        relay.run()
    watch.cancel()


def test_a_message_that_is_refused_is_put_aside_and_the_others_are_sent_once(engine: Engine) -> None:
    other = Other()

    def refuse(delivery: Delivery) -> None:
        if delivery.value == b"b":
            raise MessageRefused("no such task")

    other.before = refuse
    add(engine, "a", "b", "c")
    assert Relay(engine, send=other).drain() == 2
    assert other.values == [b"a", b"c"]
    with engine.begin() as connection:
        [refused] = quarantine.refused_messages(connection)
        assert (refused.value, refused.reason) == (b"b", "no such task")
        quarantine.retry(connection, [refused.number])
    other.before = lambda delivery: None
    assert Relay(engine, send=other).drain() == 1
    assert other.values == [b"a", b"c", b"b"]


def test_a_relay_has_one_way_to_send(engine: Engine) -> None:
    async def coroutine(delivery: Delivery) -> None: ...

    for options, says in (
        ({}, "kafka or send"),
        ({"kafka": "127.0.0.1:1", "send": print}, "kafka or send"),
        ({"send": coroutine}, "without `async`"),
    ):
        with pytest.raises(RelayRefused, match=says):
            Relay(engine, **options)  # type: ignore[arg-type]
