"""The outbox and the inbox in transactions of the ORM: a message or a claim commits with the rows, or not at all."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from djangos import alias_of, count, effects, model_on
from semel import outbox as plain_outbox
from semel.database import NotInTransaction, engine_of
from semel.inbox import Message, Outcome, Retries
from semel.inbox import quarantine as held
from semel.inbox.tables import claims

ONCE = Retries(attempts=1)


def message(name: str) -> Message:
    return Message("orders", 0, 7, None, name.encode())


def handling(alias: str, function: Callable[[Message], Any]) -> Any:
    from semel.django import inbox

    def identity(one: Message) -> str:
        return str(one.value, "utf-8")

    return inbox.handler("orders", consumer=f"c-{uuid.uuid4()}", identity=identity, retries=ONCE, using=alias)(function)


# -- the outbox --------------------------------------------------------------------------------------------------------


def test_a_message_commits_with_the_rows_of_the_orm_or_not_at_all(engine: Engine, alias: str) -> None:
    from django.db import transaction

    from semel.django import outbox

    rows = model_on(alias, "effects", "name")
    for fails in (True, False):
        try:
            with transaction.atomic(using=alias):
                rows.create(name="paid")
                outbox.add("orders", "k", "v", using=alias)
                if fails:
                    raise LookupError
        except LookupError:
            pass
    assert (count(engine, effects), count(engine, plain_outbox.tables.messages)) == (1, 1)


def test_a_message_that_would_commit_with_nothing_is_refused(engine: Engine, alias: str) -> None:
    """Outside of `atomic`, and after an error that has marked the block, which Django will roll back."""
    from django.db import connections, transaction
    from django.db.transaction import TransactionManagementError

    from semel.django import outbox

    with pytest.raises(NotInTransaction, match="add the message inside of"):
        outbox.add("orders", "k", "v", using=alias)
    with transaction.atomic(using=alias):
        connections[alias].needs_rollback = True
        with pytest.raises(TransactionManagementError):
            outbox.add("orders", "k", "v", using=alias)
    assert count(engine, plain_outbox.tables.messages) == 0


# -- the inbox ---------------------------------------------------------------------------------------------------------


def test_the_claim_and_what_the_orm_does_commit_together_and_once(engine: Engine, alias: str) -> None:
    from semel.django import outbox

    def book(one: Message) -> None:
        rows.create(name=one.value.decode() if one.value else "")
        outbox.add("booked", "k", one.value, using=alias)

    rows = model_on(alias, "effects", "name")
    handler = handling(alias, book)
    assert [handler.take(message("e-1")) for _ in range(2)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    assert (count(engine, effects), count(engine, claims), count(engine, plain_outbox.tables.messages)) == (1, 1, 1)


def test_a_handler_may_be_a_coroutine(engine: Engine, alias: str) -> None:
    async def book(one: Message) -> None:
        await rows.acreate(name="paid")
        if fails:
            raise LookupError

    rows = model_on(alias, "effects", "name")
    handler = handling(alias, book)
    for fails, outcome in ((True, Outcome.QUARANTINED), (False, Outcome.ACCEPTED)):
        assert handler.take(message(f"e-{fails}")) is outcome
    assert count(engine, effects) == 1


def test_a_handler_whose_transaction_django_undoes_has_done_nothing(engine: Engine, alias: str) -> None:
    """A database error that is caught outside of a block of its own has Django roll back in the end, without an
    error."""
    from django.db import DatabaseError

    def book(_one: Message) -> None:
        rows.create(name="paid")
        if fails:
            with contextlib.suppress(DatabaseError):
                rows.create(name=None)

    rows = model_on(alias, "effects", "name")
    handler = handling(alias, book)
    for fails, outcome in ((True, Outcome.QUARANTINED), (False, Outcome.ACCEPTED)):
        assert handler.take(message(f"e-{fails}")) is outcome
    assert count(engine, effects) == 1


def test_a_write_on_another_alias_is_refused(engine: Engine, alias: str, tmp_path: Any) -> None:
    other = engine_of(f"sqlite:///{tmp_path}/other.db")
    effects.create(other)
    with alias_of(other) as elsewhere:
        rows = model_on(elsewhere, "effects", "name")
        assert handling(alias, lambda _: rows.create(name="paid")).take(message("e-1")) is Outcome.QUARANTINED
    with engine.connect() as connection:
        [event] = held.open_events(connection)
    assert "WrittenElsewhere" in event.reason
    assert count(other, effects) == 0
    other.dispose()


def test_a_message_that_was_put_aside_is_handled_when_a_person_says_so(engine: Engine, alias: str) -> None:
    def book(_one: Message) -> None:
        if fails:
            raise LookupError
        rows.create(name="paid")

    rows, fails = model_on(alias, "effects", "name"), True
    handler = handling(alias, book)
    assert handler.take(message("e-1")) is Outcome.QUARANTINED
    fails = False
    with engine.begin() as connection:
        held.retry(connection, [event.number for event in held.open_events(connection)])
    handler.retry_due()
    assert (count(engine, effects), handler.take(message("e-1"))) == (1, Outcome.DUPLICATE)


def test_a_lost_connection_is_no_fault_of_the_event(engine: Engine, alias: str) -> None:
    """Django's errors wrap those of the driver; the event is handled on the next connection."""
    from django.db import connections

    if engine.dialect.name != "postgresql":
        pytest.skip("a file has no connection that could be lost")

    def book(_one: Message) -> None:
        rows.create(name="paid")
        if not lost:
            lost.append(True)
            pid = connections[alias].connection.info.backend_pid
            with engine.begin() as connection:
                connection.execute(select(func.pg_terminate_backend(pid)))
            rows.create(name="lost")

    lost: list[bool] = []
    rows = model_on(alias, "effects", "name")
    assert handling(alias, book).take(message("e-1")) is Outcome.ACCEPTED
    assert count(engine, effects) == 1


def test_a_consumer_has_one_handler() -> None:
    from djangos import configure

    configure()
    from semel.django import inbox

    handler = inbox.handler("orders", consumer="twice", identity=str)
    handler(print)
    with pytest.raises(ValueError, match="two handlers"):
        handler(repr)
