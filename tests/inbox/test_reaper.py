"""What the reaper has taken away is never taken for new, and it takes away nothing younger than its retention."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from effects import uuid7
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError

from databases import wait_for_waiter
from semel.database import engine_of
from semel.inbox import Outcome, RetentionTooShort, claim_many, is_passing, metadata, once, reap, reaper
from semel.inbox.admission import Admission
from semel.inbox.events import Message
from semel.inbox.loop import Every
from semel.inbox.quarantine import Aside, Cause, drop, put, retry, subject_of
from semel.inbox.reaper import DAY_MS
from semel.inbox.tables import claims, quarantine
from semel.testing.clock import Clock

if TYPE_CHECKING:
    from semel.testing.postgres import PostgresServer


def claim(engine: Engine, message_id: str, clock: Clock, event_time_ms: int | None = None) -> Outcome:
    with (
        engine.begin() as connection,
        once(
            connection, consumer="billing", message_id=message_id, event_time_ms=event_time_ms, clock=clock
        ) as outcome,
    ):
        return outcome


def count(engine: Engine, table: object = claims) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(table)) or 0)  # type: ignore[arg-type]


def test_an_id_older_than_the_floor_is_never_new(engine: Engine, clock: Clock) -> None:
    known, unknown = uuid7(clock.ms, 1), uuid7(clock.ms, 2)
    assert claim(engine, known, clock) is Outcome.ACCEPTED
    clock.ms += 8 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 1
    assert count(engine) == 0
    assert claim(engine, known, clock) is Outcome.QUARANTINED
    assert claim(engine, known, clock) is Outcome.DUPLICATE
    with engine.begin() as connection:
        assert claim_many(connection, "billing", [known, unknown, "e-1"], clock=clock) == {"e-1"}
        assert claim_many(connection, "shipping", [unknown], clock=clock) == {unknown}
    assert count(engine, quarantine) == 2


def test_a_machine_whose_clock_is_ahead_deletes_no_claim_of_today(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that does not contain its time would be taken for new when the event is delivered again."""
    engine = engine_of(postgres.new_database())
    metadata.create_all(engine)
    with engine.begin() as connection:
        assert claim_many(connection, "billing", ["e-1"]) == {"e-1"}
    ahead_ns = time.time_ns() + 40 * DAY_MS * 1_000_000
    with monkeypatch.context() as machine:
        machine.setattr(time, "time_ns", lambda: ahead_ns)
        assert reap(engine, consumer="billing", retention_ms=30 * DAY_MS) == 0
    with engine.begin() as connection:
        assert claim_many(connection, "billing", ["e-1"]) == set()
    engine.dispose()


@pytest.mark.parametrize("days_back", [2, 9, 20_000])
def test_a_clock_that_went_back_makes_nothing_new(engine: Engine, clock: Clock, days_back: int) -> None:
    """As in a machine that begins in 1970. What lies ahead of such a clock may be older than the floor."""
    known = uuid7(clock.ms)
    assert claim(engine, known, clock) is Outcome.ACCEPTED
    clock.ms += 8 * DAY_MS
    reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
    clock.ms -= days_back * DAY_MS
    reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
    assert claim(engine, known, clock) is Outcome.QUARANTINED
    with engine.begin() as connection:
        assert claim_many(connection, "billing", [known], clock=clock) == set()


def test_what_is_done_from_time_to_time_is_done_though_the_clock_goes_back(clock: Clock) -> None:
    every = Every(1_000, clock)
    clock.ms += 400 * DAY_MS
    assert (every.is_due(), every.is_due()) == (True, False)
    clock.ms -= 400 * DAY_MS
    assert (every.is_due(), every.is_due()) == (True, False)
    clock.ms += 1_000
    assert every.is_due()


def test_a_claim_that_is_made_at_the_floor_while_the_reaper_works_is_kept(engine: Engine, clock: Clock) -> None:
    """By a process whose clock is behind: the claim looks as old as those that are deleted. An event at the floor is
    taken for new if it has no claim."""
    floor_ms = clock.ms - 7 * DAY_MS
    behind = Clock(floor_ms - 2 * DAY_MS)
    at_floor = uuid7(floor_ms)
    with engine.begin() as connection:
        reaper.raise_floor(connection, "billing", floor_ms)
    assert claim(engine, at_floor, behind) is Outcome.ACCEPTED
    with engine.begin() as connection:
        assert reaper.delete_step(connection, "billing", floor_ms, clock.ms - DAY_MS) == 0
    assert claim(engine, at_floor, clock) is Outcome.DUPLICATE


def test_the_time_in_an_id_counts_whatever_time_its_record_has(engine: Engine, clock: Clock) -> None:
    """A producer that sends an event again does so in a record with another time, which may be above the floor."""
    event = uuid7(clock.ms)
    assert claim(engine, event, clock, clock.ms + 5) is Outcome.ACCEPTED
    clock.ms += 8 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 1
    assert claim(engine, event, clock, clock.ms) is Outcome.QUARANTINED


def test_a_late_id_above_the_floor_is_new(engine: Engine, clock: Clock) -> None:
    late = uuid7(clock.ms - 6 * DAY_MS)
    reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
    assert [claim(engine, late, clock) for _ in range(2)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]


def test_an_id_without_a_time_is_kept_from_its_claim_on_or_from_the_time_that_came_with_it(
    engine: Engine, clock: Clock
) -> None:
    happened_ms = clock.ms - 6 * DAY_MS
    assert claim(engine, "with", clock, happened_ms) is Outcome.ACCEPTED
    clock.ms += 2 * DAY_MS
    assert claim(engine, "without", clock) is Outcome.ACCEPTED
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 0
    clock.ms += 6 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 1
    assert claim(engine, "without", clock) is Outcome.DUPLICATE
    assert claim(engine, "with", clock, happened_ms) is Outcome.QUARANTINED


@pytest.mark.parametrize("lag_days", [6, 400])
def test_the_claim_of_a_consumer_that_is_behind_is_kept_for_the_whole_retention(
    engine: Engine, clock: Clock, lag_days: int
) -> None:
    """The producer sends the event again, in a record with another time."""
    assert claim(engine, "e-1", clock, clock.ms - lag_days * DAY_MS) is Outcome.ACCEPTED
    for _ in range(6):
        clock.ms += DAY_MS
        reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
        assert claim(engine, "e-1", clock, clock.ms) is Outcome.DUPLICATE


def test_the_claim_of_an_event_of_the_future_is_kept_until_then(engine: Engine, clock: Clock) -> None:
    assert claim(engine, uuid7(clock.ms + 20 * DAY_MS), clock) is Outcome.ACCEPTED
    clock.ms += 20 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 0
    assert claim(engine, uuid7(clock.ms), clock) is Outcome.DUPLICATE


def test_a_new_consumer_takes_events_of_any_age(engine: Engine, clock: Clock) -> None:
    """A replay of history, in which the reaper runs again and again."""
    for days in range(900, 0, -90):
        reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
        for event, event_time_ms in ((uuid7(clock.ms - days * DAY_MS), None), (f"e-{days}", clock.ms - days * DAY_MS)):
            assert claim(engine, event, clock, event_time_ms) is Outcome.ACCEPTED
            assert claim(engine, event, clock, event_time_ms) is Outcome.DUPLICATE
    with engine.begin() as connection:
        old = [uuid7(clock.ms - 5_000 * DAY_MS, number) for number in range(3)]
        assert claim_many(connection, "billing", old, clock=clock) == set(old)
    assert claim(engine, "before 1970", clock, -1) is Outcome.ACCEPTED
    assert count(engine, quarantine) == 0


def test_after_a_long_absence_a_consumer_takes_what_came_meanwhile(engine: Engine, clock: Clock) -> None:
    assert claim(engine, uuid7(clock.ms), clock) is Outcome.ACCEPTED
    last_ms = clock.ms
    clock.ms += 90 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 1
    assert claim(engine, uuid7(last_ms), clock) is Outcome.QUARANTINED
    assert claim(engine, uuid7(last_ms + 1), clock) is Outcome.ACCEPTED


def test_an_event_in_the_quarantine_keeps_its_claim_until_it_is_done_or_dropped(engine: Engine, clock: Clock) -> None:
    for number, event in enumerate(("retried", "dropped"), 1):
        with engine.begin() as connection:
            assert claim_many(connection, "billing", [event], clock=clock) == {event}
            aside = Aside(
                "billing", subject_of(event), Cause.FAILED, "no", clock.ms, 5, Message("t", 0, number, b"", b"")
            )
            assert put(connection, aside)
    clock.ms += 40 * DAY_MS
    assert reap(engine, consumer="billing", clock=clock) == 0
    admission = Admission("billing", lambda _: "", 1, is_passing, clock)
    with engine.begin() as connection:
        assert claim_many(connection, "billing", ["retried", "dropped"], clock=clock) == set()
        assert admission.retake(connection, 1) is None, "nobody has marked it"
        retry(connection, [1])
        assert admission.retake(connection, 1) is not None
        drop(connection, [2], first_version=1, now_ms=clock.ms)
    for days, is_known in ((29, True), (2, False)):
        clock.ms += days * DAY_MS
        reap(engine, consumer="billing", clock=clock)
        with engine.begin() as connection:
            assert (claim_many(connection, "billing", ["retried", "dropped"], clock=clock) == set()) == is_known


def test_a_claim_is_deleted_though_another_consumer_has_its_event_in_the_quarantine(
    engine: Engine, clock: Clock
) -> None:
    assert claim(engine, "e-1", clock) is Outcome.ACCEPTED
    with engine.begin() as connection:
        assert put(connection, Aside("shipping", subject_of("e-1"), Cause.FAILED, "no", clock.ms))
        assert claim_many(connection, "shipping", ["e-1"], clock=clock) == {"e-1"}
    clock.ms += 8 * DAY_MS
    for consumer, deleted in (("billing", 1), ("shipping", 0)):
        assert reap(engine, consumer=consumer, retention_ms=7 * DAY_MS, clock=clock) == deleted


def test_many_claims_go_in_small_steps(engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine.begin() as connection:
        claim_many(connection, "billing", [f"e-{number}" for number in range(25)], clock=clock)
        claim_many(connection, "shipping", ["e-1"], clock=clock)
    monkeypatch.setattr(reaper, "STEP_ROWS", 10)
    with engine.begin() as connection:
        assert reaper.delete_step(connection, "billing", clock.ms + 1, clock.ms + 1) == 10
    clock.ms += 8 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 15
    assert count(engine) == 1


def test_a_clock_that_went_back_lowers_nothing(engine: Engine, clock: Clock) -> None:
    early, late = uuid7(clock.ms), uuid7(clock.ms + 3 * DAY_MS)
    clock.ms += 3 * DAY_MS
    assert claim(engine, late, clock) is Outcome.ACCEPTED
    clock.ms += 8 * DAY_MS
    reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
    clock.ms -= 11 * DAY_MS
    assert claim(engine, early, clock) is Outcome.ACCEPTED, "an id of this hour is not compared"
    clock.ms += 8 * DAY_MS
    reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
    assert claim(engine, late, clock) is Outcome.QUARANTINED


def test_a_retention_that_clocks_could_undercut_is_refused(engine: Engine) -> None:
    with pytest.raises(RetentionTooShort, match="at least 1 day"):
        reap(engine, consumer="billing", retention_ms=DAY_MS - 1)


def test_whoever_waited_for_the_reaper_sees_its_floor(engine: Engine, clock: Clock) -> None:
    """The claim is about to be deleted; a second one of the same id waits for that, and must not be new then."""
    if engine.dialect.name == "sqlite":
        pytest.skip("its transactions come one after the other")
    old = uuid7(clock.ms)
    assert claim(engine, old, clock) is Outcome.ACCEPTED
    # There is a floor, which is not yet above it.
    with engine.begin() as connection:
        reaper.raise_floor(connection, "billing", clock.ms - DAY_MS)
    clock.ms += 8 * DAY_MS
    floor_ms = clock.ms - 7 * DAY_MS
    with ThreadPoolExecutor() as pool, engine.connect() as stale:
        stale = stale.execution_options(isolation_level="REPEATABLE READ")
        stale.exec_driver_sql("SELECT * FROM effects")
        with engine.begin() as connection:
            reaper.raise_floor(connection, "billing", floor_ms)
        with engine.begin() as connection:
            assert reaper.delete_step(connection, "billing", floor_ms, floor_ms) == 1
            waiting = pool.submit(claim, engine, old, clock)
            wait_for_waiter(connection, waiting)
        assert waiting.result(60) is Outcome.QUARANTINED
        if engine.dialect.name == "mysql":
            with once(stale, consumer="billing", message_id=uuid7(clock.ms - 8 * DAY_MS, 3), clock=clock) as outcome:
                assert outcome is Outcome.QUARANTINED
            return
        # Who reads as of before the floor cannot claim at all.
        with pytest.raises(DBAPIError, match="could not serialize"):
            once(stale, consumer="billing", message_id=uuid7(clock.ms - 8 * DAY_MS, 3), clock=clock).__enter__()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("claim"), st.integers(0, 5)),
            st.tuples(st.just("wait"), st.integers(0, 5)),
            st.tuples(st.just("reap"), st.integers(1, 4)),
        ),
        max_size=20,
    )
)
def test_no_event_is_new_twice_whatever_was_reaped(engine: Engine, steps: list[tuple[str, int]]) -> None:
    clock, consumer = Clock(), uuid.uuid4().hex
    born_ms, floor_ms = clock.ms, None
    new: list[str] = []
    kept: dict[int, tuple[int, int]] = {}
    for kind, number in steps:
        if kind == "wait":
            clock.ms += number * DAY_MS
        elif kind == "reap":
            reap(engine, consumer=consumer, retention_ms=number * DAY_MS, clock=clock)
            before_ms = clock.ms - number * DAY_MS
            old = {name: times for name, times in kept.items() if max(times) < before_ms}
            if old:
                floor_ms = max(floor_ms or 0, *(event_time_ms + 1 for event_time_ms, _ in old.values()))
            kept = {name: times for name, times in kept.items() if name not in old}
        else:
            event = uuid7(born_ms + number * DAY_MS, number)
            with (
                engine.begin() as connection,
                once(connection, consumer=consumer, message_id=event, clock=clock) as first,
            ):
                pass
            is_fresh = abs(born_ms + number * DAY_MS - clock.ms) < reaper.FRESH_MS
            is_above = is_fresh or floor_ms is None or born_ms + number * DAY_MS >= floor_ms
            assert bool(first) == (is_above and number not in kept)
            if first:
                new.append(event)
                kept[number] = born_ms + number * DAY_MS, clock.ms
    assert len(new) == len(set(new))
