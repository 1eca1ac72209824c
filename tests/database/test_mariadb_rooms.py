"""HTTP keys, recorded steps, workflows, floors and the outbox on MariaDB: a key is taken once, what was added arrives
once, and what a transaction has read before hides nothing that others have committed since."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, text

from semel import outbox, schema
from semel.database import engine_of
from semel.database.clock import now_ms
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
from semel.inbox.reaper import raise_floor
from semel.outbox.layout import status
from semel.steps import Run, State, Worker, WorkflowRefused, ledger, look_up, start, workflow
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


def add(connection: Connection, id: str, queue: str, *arguments: object) -> None:
    ledger.add(connection, "flow", arguments, id=id, queue=queue, delay_ms=0, deadline_ms=None, clock=now_ms)


def test_a_workflow_runs_to_its_end(engine: Engine) -> None:
    @workflow
    def flow(run: Run, number: int) -> int:
        with run.step("first") as step:
            if step.first:
                step.result = number + 1
        run.sleep("a moment", 0)
        return int(step.result)

    with engine.begin() as connection:
        id = start(connection, flow, 2)
    while Worker(engine, [flow]).drain():
        pass
    with engine.begin() as connection:
        found = look_up(connection, id)
    assert (found.state, found.result) == (State.DONE, 3)


def test_a_start_that_others_have_made_since_the_first_read_is_a_repeated_one(engine: Engine) -> None:
    with engine.connect() as late, late.begin():
        late.execute(text("SELECT * FROM semel_workflows")).all()
        with engine.begin() as other:
            add(other, "w-1", "default", 1)
        add(late, "w-1", "default", 1)
        with pytest.raises(WorkflowRefused, match="belongs to"):
            add(late, "w-1", "default", 2)


def test_of_two_workers_that_take_at_once_the_later_one_counts_what_the_first_one_has_taken(engine: Engine) -> None:
    queues = {"free": None, "limited": 1}

    def take() -> list[str]:
        with engine.begin() as connection:
            taken, _ = ledger.take(connection, queues, ["flow"], 5, 60_000, now_ms)
            return [one.id for one in taken]

    with engine.begin() as connection:
        for id, queue in (("f-1", "free"), ("l-1", "limited"), ("l-2", "limited")):
            add(connection, id, queue)
    waits = text("SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'")
    with ThreadPoolExecutor() as pool, engine.connect() as watching:
        with engine.begin() as first:
            taken, _ = ledger.take(first, {"limited": 1}, ["flow"], 5, 60_000, now_ms)
            assert [one.id for one in taken] == ["l-1"]
            second = pool.submit(take)
            while not watching.execute(waits).all():
                assert not second.done()
        assert second.result(60) == ["f-1"]


def test_the_floor_that_another_reaper_has_made_is_the_floor(engine: Engine) -> None:
    with engine.connect() as late, late.begin():
        late.execute(text("SELECT * FROM semel_inbox_floors")).all()
        with engine.begin() as other:
            assert raise_floor(other, "billing", 5) == 5
        assert raise_floor(late, "billing", 4) == 5
