"""What a handler writes on another connection than that of its event's claim is refused, with the remedy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from effects import do, done, effects
from sqlalchemy import Engine, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session
from test_own_ends import asynchronous, held, inbox_of, message

from djangos import alias_of, model_on
from semel import offsets, outbox
from semel.database import TransactionBroken, WrittenElsewhere, elsewhere, engine_of
from semel.inbox import (
    AsyncInbox,
    Outcome,
    claim_many,
    claim_many_async,
    next_version,
    next_version_async,
    once,
    once_async,
)


@pytest.fixture
def alias(engine: Engine) -> Iterator[str]:
    with alias_of(engine) as name:
        yield name


@pytest.fixture(autouse=True)
def tables(engine: Engine) -> None:
    offsets.metadata.create_all(engine)


@pytest.fixture
def other(tmp_path: Any) -> Iterator[Engine]:
    made = engine_of(f"sqlite:///{tmp_path}/other.db")
    effects.metadata.create_all(made)
    outbox.metadata.create_all(made)
    yield made
    made.dispose()


# -- Django ------------------------------------------------------------------------------------------------------------


def test_the_orm_of_django_in_a_handler_is_refused_at_the_first_event(engine: Engine, alias: str) -> None:
    """It would commit, and come again with the event after a crash before the commit of the claim."""
    rows, inbox = model_on(alias, "effects", "name"), inbox_of(engine)
    assert inbox.take(lambda *_: rows.create(name="e-1"), message("e-1")) is Outcome.QUARANTINED
    [reason] = held(engine)
    assert "WrittenElsewhere" in reason
    assert "for events, write a handler of semel.django.inbox" in reason
    assert done(engine) == []


def test_a_coroutine_with_the_orm_of_django_is_refused_as_well(engine: Engine, alias: str) -> None:
    """Django works in a thread of its own there."""
    rows = model_on(alias, "effects", "name")

    async def handle(_connection: AsyncConnection, _message: object) -> None:
        await rows.acreate(name="e-1")

    async def take() -> Outcome | None:
        database = asynchronous(engine)
        try:
            taken: Outcome | None = await inbox_of(database, AsyncInbox).take(handle, message("e-1"))
            return taken
        finally:
            await database.dispose()

    assert asyncio.run(take()) is Outcome.QUARANTINED
    assert "WrittenElsewhere" in held(engine)[0]
    assert done(engine) == []


def test_the_way_that_the_refusal_names_does_each_event_once(engine: Engine, alias: str) -> None:
    from django.db import connections, transaction

    rows = model_on(alias, "effects", "name")

    def handle(event: str, *, fails: bool = False) -> Outcome:
        with transaction.atomic(using=alias):
            with once(connections[alias].connection, consumer="billing", message_id=event) as first:
                if first:
                    rows.create(name=event)
                    if fails:
                        raise ConnectionError
            return first

    with pytest.raises(ConnectionError):
        handle("e-1", fails=True)
    assert [handle("e-1") for _ in range(2)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    assert done(engine) == ["e-1"]


def test_djangos_own_object_is_refused_with_what_to_hand_over(alias: str) -> None:
    from django.db import connections

    with pytest.raises(TypeError, match=r"connection\.connection.*transaction\.atomic"):
        once(connections[alias], consumer="billing", message_id="e-1").__enter__()


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------


def test_a_handler_with_a_session_of_its_own_is_refused_and_one_that_means_it_is_not(
    engine: Engine, other: Engine
) -> None:
    def handle(connection: Any, _message: object) -> None:
        do(connection, "e-1")
        with elsewhere() if is_meant else contextlib.nullcontext(), Session(other) as session, session.begin():
            session.execute(insert(effects), {"name": "log"})

    is_meant = False
    assert inbox_of(engine).take(handle, message("e-1")) is Outcome.QUARANTINED
    assert "WrittenElsewhere: INSERT INTO effects" in held(engine)[0]
    assert (done(engine), done(other)) == ([], [])
    is_meant = True
    assert inbox_of(engine).take(handle, message("e-2")) is Outcome.ACCEPTED
    assert (done(engine), done(other)) == (["e-1"], ["log"])


def test_a_handler_that_catches_the_refusal_has_failed(engine: Engine, other: Engine) -> None:
    def handle(_connection: Any, _message: object) -> None:
        with contextlib.suppress(Exception), other.begin() as own:
            do(own, "e-1")

    assert inbox_of(engine).take(handle, message("e-1")) is Outcome.QUARANTINED
    assert "WrittenElsewhere" in held(engine)[0]


def test_a_second_transaction_on_the_same_file_does_not_wait_for_the_first_one(engine: Engine) -> None:
    """It waited for the busy timeout, and again and again, because a lock passes by itself."""
    if engine.dialect.name != "sqlite":
        pytest.skip("each transaction gets its turn there")

    def handle(_connection: Any, _message: object) -> None:
        with engine.begin() as own:
            do(own, "e-1")

    assert inbox_of(engine).take(handle, message("e-1")) is Outcome.QUARANTINED
    assert "WaitsForItself" in held(engine)[0]


def test_the_block_of_a_claim_is_refused_and_its_transaction_cannot_commit(engine: Engine, other: Engine) -> None:
    def handle(connection: Any) -> None:
        with once(connection, consumer="billing", message_id="e-1"), other.begin() as own:
            do(own, "e-1")

    with pytest.raises(TransactionBroken), engine.begin() as connection, contextlib.suppress(WrittenElsewhere):
        handle(connection)
    assert (done(engine), done(other)) == ([], [])
    # Before and after the block, and beside a duplicate, each connection is its own.
    with engine.begin() as connection, other.begin() as own:
        do(own, "before")
        with once(connection, consumer="billing", message_id="e-1"):
            do(connection, "e-1")
        do(own, "after")
        with once(connection, consumer="billing", message_id="e-1") as first:
            assert not first
            do(own, "beside")
    assert (done(engine), done(other)) == (["e-1"], ["before", "after", "beside"])


def test_a_message_for_the_outbox_belongs_on_the_connection_of_the_claim(engine: Engine, other: Engine) -> None:
    def handle(_connection: Any, _message: object) -> None:
        with other.begin() as own:
            outbox.add(own, "payments", b"k", b"v")

    assert inbox_of(engine).take(handle, message("e-1")) is Outcome.QUARANTINED
    assert "WrittenElsewhere: INSERT INTO semel_outbox" in held(engine)[0]


CLAIMS: list[Any] = [
    lambda connection: claim_many(connection, "billing", ["e-1"]),
    lambda connection: next_version(connection, "billing", "o-1", 1),
    lambda connection: offsets.advance(connection, "billing", "orders", 0, 7),
]
CLAIMS_ASYNC: list[Any] = [
    lambda connection: claim_many_async(connection, "billing", ["e-1"]),
    lambda connection: next_version_async(connection, "billing", "o-1", 1),
    lambda connection: offsets.advance_async(connection, "billing", "orders", 0, 7),
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_without_a_block_counts_until_its_transaction_ends(engine: Engine, other: Engine, claim: Any) -> None:
    def careless(connection: Any) -> None:
        assert claim(connection)
        with contextlib.suppress(WrittenElsewhere), other.begin() as own:
            do(own, "e-1")

    # The refusal was caught, and the claim would commit without its effect.
    with pytest.raises(TransactionBroken), engine.begin() as connection:
        careless(connection)
    with other.begin() as own:
        do(own, "after")
    with engine.begin() as connection:
        assert claim(connection)
        do(connection, "e-1")
    with engine.begin() as connection, other.begin() as own:
        assert not claim(connection)
        do(own, "beside a duplicate")
    assert (done(engine), done(other)) == (["e-1"], ["after", "beside a duplicate"])


@pytest.mark.parametrize("claim", CLAIMS_ASYNC)
def test_coroutines_are_looked_after_in_the_same_way(engine: Engine, other: Engine, claim: Any) -> None:
    async def book(database: Any, beside: Any) -> None:
        async with (
            database.begin() as connection,
            once_async(connection, consumer="billing", message_id="e-2"),
            beside.begin() as own,
        ):
            await own.run_sync(lambda one: do(one, "e-2"))

    async def work() -> None:
        database, beside = asynchronous(engine), asynchronous(other)
        try:
            async with database.connect() as connection:
                assert await claim(connection)
                with pytest.raises(WrittenElsewhere):
                    async with beside.begin() as own:
                        await own.run_sync(lambda one: do(one, "e-1"))
            with pytest.raises(WrittenElsewhere):
                await book(database, beside)
            async with beside.begin() as own:
                await own.run_sync(lambda one: do(one, "after"))
        finally:
            await database.dispose()
            await beside.dispose()

    asyncio.run(work())
    assert (done(engine), done(other)) == ([], ["after"])
