"""HTTP keys, recorded steps and the outbox on MariaDB: a key is taken once, and what was added arrives once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from semel import outbox, schema
from semel.database import engine_of
from semel.http import reap
from semel.http.answers import Answer
from semel.http.claims import (
    NO_LEASE,
    Accepted,
    Differs,
    Duplicate,
    Fenced,
    Running,
    Term,
    claim,
    hold,
    keep,
    name_of,
)
from semel.outbox.layout import status
from semel.steps.records import begin_step, finish_step, noted_step

IN_TRANSACTION = Term(60_000, NO_LEASE)
NAME = name_of("anna", "k-1")


@pytest.fixture
def engine(mariadb_url: str) -> Iterator[Engine]:
    made = engine_of(mariadb_url)
    schema.make(made)
    yield made
    made.dispose()


def test_a_key_is_taken_once_and_a_second_request_does_not_wait(engine: Engine) -> None:
    with engine.begin() as first:
        accepted = claim(first, NAME, "f", IN_TRANSACTION)
        assert isinstance(accepted, Accepted)
        with engine.begin() as second:
            waits = second.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar()
            assert isinstance(claim(second, NAME, "f", IN_TRANSACTION), Running)
            assert second.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar() == waits
        keep(first, NAME, accepted.token, Answer(200, [(b"a", b"b")], b"body"), 200, IN_TRANSACTION)
    with engine.begin() as later:
        outcome = claim(later, NAME, "f", IN_TRANSACTION)
        assert isinstance(outcome, Duplicate)
        assert outcome.answer is not None
        assert outcome.answer.body == b"body"
        assert isinstance(claim(later, NAME, "g", IN_TRANSACTION), Differs)


def test_a_lease_that_ran_out_is_taken_over_and_its_holder_fenced(engine: Engine) -> None:
    with engine.begin() as connection:
        first = claim(connection, NAME, "f", Term(1, 0))
        assert isinstance(first, Accepted)
        begin_step(connection, NAME, "charge")
        finish_step(connection, NAME, "charge", "1")
        with pytest.raises(RuntimeError, match="finished meanwhile"):
            finish_step(connection, NAME, "charge", "2")
        assert noted_step(connection, NAME, "charge") == "1"
    with engine.begin() as connection:
        second = claim(connection, NAME, "f", Term(1, 0))
        assert isinstance(second, Accepted)
        assert second.token > first.token
    with pytest.raises(Fenced), engine.begin() as connection:
        hold(connection, NAME, first.token, Term(1, 0))
    with engine.connect() as connection:
        at_ms = connection.scalar(text("SELECT max(expires_ms) FROM semel_http_keys")) or 0
    assert reap(engine, at_ms) == 1


def test_what_was_added_arrives_once_and_a_row_that_is_no_record_is_put_aside(engine: Engine, bootstrap: str) -> None:
    with engine.begin() as connection:
        outbox.add_many(connection, [outbox.Message("orders", "b", str(number)) for number in range(5)])
    assert outbox.Relay(engine, bootstrap).drain() == 5
    with engine.begin() as connection:
        bad = "INSERT INTO semel_outbox (topic, bucket, added_at_ms) VALUES ('no topic', 1, 5)"
        connection.execute(text(bad))
        outbox.add(connection, "orders", "c", "9")
    assert outbox.Relay(engine, bootstrap).drain() == 1
    with engine.connect() as connection:
        found = status(connection)
    assert (found.waiting, found.quarantined, found.held_up) == (1, 1, 0)
