"""A claim is accepted once for each consumer and event, in the transaction of its effect, whoever else is about."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from effects import do, done
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from databases import ASYNC_DRIVERS, wait_for_waiter
from semel.database import begin_immediately
from semel.inbox import (
    BrokerCoordinates,
    Outcome,
    UnusableId,
    claim_many,
    claim_many_async,
    derived_key,
    next_version,
    next_version_async,
    once,
    once_async,
)
from semel.testing.clock import Clock


def handle(engine: Engine, message_id: str, consumer: str = "billing") -> Outcome:
    with engine.begin() as connection, once(connection, consumer=consumer, message_id=message_id) as first:
        if first:
            do(connection, f"{consumer}:{message_id}")
    return first


def test_an_event_has_its_effect_once_for_each_consumer(engine: Engine) -> None:
    assert [handle(engine, "e-1") for _ in range(3)] == [Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.DUPLICATE]
    assert handle(engine, "e-1", "shipping") is Outcome.ACCEPTED
    assert handle(engine, "e-2") is Outcome.ACCEPTED
    assert done(engine) == ["billing:e-1", "shipping:e-1", "billing:e-2"]


def test_a_claim_goes_when_its_effect_does(engine: Engine) -> None:
    def fail() -> None:
        with engine.begin() as connection, once(connection, consumer="billing", message_id="e-1") as first:
            assert first
            do(connection, "half of it")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with Session(engine) as session:
        with once(session, consumer="billing", message_id="e-1") as first:
            assert first
        session.rollback()
    assert handle(engine, "e-1") is Outcome.ACCEPTED
    assert done(engine) == ["billing:e-1"]


@pytest.mark.parametrize("first_one_commits", [True, False])
def test_of_two_at_once_the_second_waits_for_the_first(engine: Engine, first_one_commits: bool) -> None:
    with ThreadPoolExecutor() as pool:
        with engine.connect() as connection:
            transaction = connection.begin()
            with once(connection, consumer="billing", message_id="e-1") as first:
                do(connection, "of the first one")
            assert first
            second = pool.submit(handle, engine, "e-1")
            wait_for_waiter(connection, second)
            assert not second.done()
            transaction.commit() if first_one_commits else transaction.rollback()
        outcome = second.result(60)
    assert outcome is (Outcome.DUPLICATE if first_one_commits else Outcome.ACCEPTED)
    assert done(engine) == (["of the first one"] if first_one_commits else ["billing:e-1"])


def test_a_raw_connection_does(engine: Engine) -> None:
    if engine.dialect.name == "mysql":
        pytest.skip("a driver's own connection is refused")
    if engine.dialect.name == "postgresql":
        raw: Any = psycopg.connect(engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    else:
        with engine.begin() as connection:
            raw = connection.connection.driver_connection
            assert claim_many(raw, "billing", ["e-2", "e-3"]) == {"e-2", "e-3"}
            with once(raw, consumer="billing", message_id="e-1") as first:
                assert first
        assert handle(engine, "e-1") is Outcome.DUPLICATE
        return
    assert claim_many(raw, "billing", ["e-2", "e-3"]) == {"e-2", "e-3"}
    with once(raw, consumer="billing", message_id="e-1") as first:
        assert first
    raw.commit()
    raw.close()
    assert handle(engine, "e-1") is Outcome.DUPLICATE


@pytest.mark.parametrize("driver", [*ASYNC_DRIVERS.values(), "postgresql+psycopg"])
def test_an_asynchronous_connection_does(engine: Engine, url: str, driver: str) -> None:
    if driver.partition("+")[0] not in url:
        pytest.skip("another database")

    async def work() -> list[Any]:
        made = create_async_engine(make_url(url).set(drivername=driver))
        if "sqlite" in driver:
            begin_immediately(made.sync_engine)
        async with made.begin() as connection:
            found: list[Any] = []
            for _ in range(2):
                async with once_async(connection, consumer="billing", message_id="e-1") as first:
                    found.append(first)
            found.append(await claim_many_async(connection, "billing", ["e-1", "e-2", "e-2"]))
            found.append(await next_version_async(connection, "billing", "order-1", 1))
        await made.dispose()
        return found

    assert asyncio.run(work()) == [Outcome.ACCEPTED, Outcome.DUPLICATE, {"e-2"}, Outcome.ACCEPTED]


def test_a_batch_is_claimed_in_one_statement(engine: Engine) -> None:
    ids = [f"e-{number}" for number in range(1000)]
    handle(engine, "e-7")
    with engine.begin() as connection:
        assert claim_many(connection, "billing", [*ids, "e-8", uuid.UUID(int=5)]) == {*ids, str(uuid.UUID(int=5))} - {
            "e-7"
        }
        assert claim_many(connection, "billing", ids) == set()
        assert claim_many(connection, "billing", []) == set()


def test_a_batch_is_claimed_in_the_order_of_its_ids(engine: Engine) -> None:
    """Whatever order it comes in: so two batches wait for each other in one order, and never in a circle."""
    with engine.begin() as connection:
        claim_many(connection, "billing", ["c", "a", "d", "b"])
        if engine.dialect.name == "mysql":
            pytest.skip("its rows lie in the order of their keys")
        place = "rowid" if engine.dialect.name == "sqlite" else "ctid"
        found = connection.exec_driver_sql(f"SELECT message_id FROM semel_inbox ORDER BY {place}").scalars()
        assert list(found) == ["a", "b", "c", "d"]


def test_batches_in_opposite_orders_do_not_lock_each_other_out(engine: Engine) -> None:
    ids = [f"e-{number}" for number in range(300)]

    def claim(batch: Sequence[str]) -> set[str]:
        with engine.begin() as connection:
            return claim_many(connection, "billing", batch)

    with ThreadPoolExecutor() as pool:
        for _ in range(5):
            found = list(pool.map(claim, [ids, ids[::-1], ids, ids[::-1]]))
            assert sorted(one for claimed in found for one in claimed) == sorted(ids)
            ids = [f"{one}'" for one in ids]


def test_versions_follow_each_other_without_gaps(engine: Engine) -> None:
    asked = [1, 1, 3, 2, 3, 2, 4]
    with engine.begin() as connection:
        found = [next_version(connection, "billing", "order-1", version) for version in asked]
        assert next_version(connection, "shipping", "order-1", 1) is Outcome.ACCEPTED
        assert next_version(connection, "billing", "order-2", 2) is Outcome.GAP
        assert next_version(connection, "billing", "order-3", 40, first_version=40) is Outcome.ACCEPTED
        assert next_version(connection, "billing", "order-3", 41, first_version=40) is Outcome.ACCEPTED
        assert next_version(connection, "billing", "order-3", 40, first_version=41) is Outcome.DUPLICATE
    a, d, g = Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.GAP
    assert found == [a, d, g, a, a, d, a]


def test_two_at_once_cannot_have_one_version(engine: Engine) -> None:
    if engine.dialect.name == "mysql":
        pytest.skip("one of two that begin at once may get a deadlock, and has to repeat")

    def take(version: int) -> Outcome:
        with engine.begin() as connection:
            return next_version(connection, "billing", "order-1", version)

    with ThreadPoolExecutor(max_workers=3) as pool:
        for version in (1, 2, 3):
            assert sorted(pool.map(take, [version] * 3)) == ["accepted", "duplicate", "duplicate"]


class FromClient:
    """As the messages of confluent-kafka and aiokafka look."""

    topic = "orders"
    partition = 0
    offset = 17

    def __str__(self) -> str:
        return "message of a client"


@pytest.mark.parametrize(
    "given_id", ["orders:0:17", "orders-0@17", "orders/0/17", "my.orders[3]@17", FromClient()], ids=str
)
def test_a_place_in_a_topic_is_no_identity(engine: Engine, given_id: Any) -> None:
    with engine.begin() as connection:
        with pytest.raises(BrokerCoordinates, match="use the id that the producer gave it"):
            once(connection, consumer="billing", message_id=given_id).__enter__()
        with pytest.raises(BrokerCoordinates):
            claim_many(connection, "billing", ["e-1", given_id])
        with pytest.raises(BrokerCoordinates):
            next_version(connection, "billing", FromClient(), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("given_id", ["", "x" * 513, "a\0b", "\ud800", 17, None, b"e-1"])
def test_what_names_no_event_is_refused(engine: Engine, given_id: Any) -> None:
    with engine.begin() as connection, pytest.raises(UnusableId):
        once(connection, consumer="billing", message_id=given_id).__enter__()
    with engine.begin() as connection, pytest.raises(UnusableId, match="name of a consumer"):
        once(connection, consumer=given_id and "x" * 129, message_id="e-1").__enter__()
    for version in (-1, 2**63, True, "1"):
        with engine.begin() as connection, pytest.raises(UnusableId, match="a version is an integer"):
            next_version(connection, "billing", "order-1", version)  # type: ignore[arg-type]


def test_the_largest_names_fit(engine: Engine) -> None:
    with engine.begin() as connection:
        assert claim_many(connection, "\U0001f600" * 128, ["\U0001f600" * 512])
        assert next_version(connection, "\U0001f600" * 128, "\U0001f600" * 512, 1)


def test_a_snapshot_that_does_not_see_the_first_claim_cannot_have_a_second(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("its transactions come one after the other")
    with engine.connect() as late:
        late = late.execution_options(isolation_level="REPEATABLE READ")
        late.exec_driver_sql("SELECT * FROM effects")
        handle(engine, "e-1")
        if engine.dialect.name == "mysql":
            # Its INSERT sees what is committed, whatever was read before.
            with once(late, consumer="billing", message_id="e-1") as outcome:
                assert outcome is Outcome.DUPLICATE
            return
        with pytest.raises(DBAPIError, match="could not serialize"):
            once(late, consumer="billing", message_id="e-1").__enter__()


def test_a_derived_key_is_the_same_everywhere() -> None:
    key = derived_key("billing", "e-1", "charge")
    assert key == hashlib.sha256(b"\0\0\0\7billing\0\0\0\3e-1\0\0\0\6charge").hexdigest()
    others = [("billing", "e-1", "refund"), ("billing", "e-2", "charge"), ("billinge", "-1", "charge")]
    assert len({key, *(derived_key(*other) for other in others)}) == 4


IDS = st.lists(st.sampled_from("abcdef"), max_size=8)
STEPS = st.lists(st.tuples(st.sampled_from(["one", "many", "version"]), IDS, st.booleans()), max_size=12)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_claims_are_those_of_a_set(engine: Engine, clock: Clock, steps: list[tuple[str, list[str], bool]]) -> None:
    consumer = uuid.uuid4().hex
    known: set[str] = set()
    last = 0
    for kind, ids, commits in steps:
        before, last_before = set(known), last
        with engine.connect() as connection, connection.begin() as transaction:
            if kind == "one":
                for one in ids:
                    with once(connection, consumer=consumer, message_id=one, clock=clock) as first:
                        assert bool(first) == (one not in known)
                    known.add(one)
            elif kind == "many":
                assert claim_many(connection, consumer, ids, clock=clock) == set(ids) - known
                known |= set(ids)
            else:
                for version in map(ord, ids):
                    asked = version - ord("a") + 1
                    expected = "duplicate" if asked <= last else "accepted" if asked == last + 1 else "gap"
                    assert next_version(connection, consumer, "order-1", asked) == expected
                    last = asked if expected == "accepted" else last
            if not commits:
                transaction.rollback()
                known, last = before, last_before
