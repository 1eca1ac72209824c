"""What a workflow promises beside others: of another function, in another queue, with steps of the same names."""

from __future__ import annotations

import pytest
from flows import book
from sqlalchemy import Engine
from test_workflows import Bench, drive_take

from semel.database.procedures import drive
from semel.steps import Run, State, Worker, WorkflowRefused, reap, resume, workflow
from semel.steps.rules import ATTEMPTS_MAX, PAUSE_MS, PAUSE_MS_MAX, after_error


@workflow
def one(run: Run, number: object = 0) -> None:
    for name in ("a", "b"):
        with run.step(name) as step:
            if step.first:
                book(step.connection(), f"{run.id}{name}")


@workflow
def other(run: Run, number: object = 0) -> str:
    return "the other"


def test_an_id_belongs_to_its_function_and_to_arguments_of_the_same_kind(engine: Engine) -> None:
    bench = Bench(engine, one, other)
    bench.start(one, 1, id="x")
    for flow, number in ((other, 1), (one, True), (one, 1.0), (one, "1")):
        with pytest.raises(WorkflowRefused, match="other arguments"):
            bench.start(flow, number, id="x")


def test_a_worker_leaves_functions_that_it_has_not_to_others(engine: Engine) -> None:
    bench = Bench(engine, one)
    id = bench.start(other)
    assert bench.run() == 0
    bench.worker = Worker(engine, [one, other], clock=bench.clock)
    assert bench.run() == 1
    assert bench.found(id).result == "the other"


def test_a_worker_takes_no_more_from_all_queues_than_it_may_and_counts_each_by_itself(engine: Engine) -> None:
    bench = Bench(engine, one, queues={"mail": 2, "bulk": 1, "default": None})
    for queue in ("mail", "bulk", "default"):
        for _ in range(2):
            bench.start(one, queue=queue)
    assert len(drive_take(bench.worker, 1)) == 1
    assert [flow.workflow for flow in drive_take(bench.worker, 2)] == ["one", "one"], "one of mail, and one of bulk"
    assert len(drive_take(bench.worker, 9)) == 2, "those of the queue without a limit"
    assert drive_take(bench.worker, 9) == []


def test_one_whose_worker_is_gone_comes_before_those_that_wait(engine: Engine) -> None:
    bench = Bench(engine, one)
    begun = bench.start(one, id="begun")
    drive_take(bench.worker, 1)
    bench.start(one, id="waits")
    bench.clock.ms += 30_000
    assert [taken.id for taken in drive_take(bench.worker, 1)] == [begun]


def test_a_workflow_that_has_failed_at_its_deadline_is_deleted_in_time_and_may_be_resumed_without_one(
    engine: Engine,
) -> None:
    bench = Bench(engine, one)
    for id in ("x", "y"):
        bench.start(one, id=id, deadline_seconds=10)
    bench.run(11)
    assert bench.found("x").state == State.FAILED
    with engine.begin() as connection:
        resume(connection, "x", clock=bench.clock)
    assert bench.run() == 1
    assert bench.found("x").state == State.DONE
    assert bench.found("y").ended_ms is not None
    assert reap(engine, 0) == 2


def test_those_whose_deadline_is_over_keep_nobody_waiting(engine: Engine) -> None:
    bench = Bench(engine, one)
    late = [bench.start(one, deadline_seconds=10) for _ in range(3)]
    in_time = bench.start(one)
    assert bench.run(11) == 1
    assert [bench.found(id).state for id in (*late, in_time)] == [*[State.FAILED] * 3, State.DONE]


def test_a_workflow_that_was_given_up_has_all_its_attempts_again_when_it_is_resumed(engine: Engine) -> None:
    bench = Bench(engine, one)
    id = bench.start(one)
    for _ in range(ATTEMPTS_MAX):
        assert len(drive_take(bench.worker, 1)) == 1
        bench.clock.ms += 30_000
    assert bench.run() == 0
    with engine.begin() as connection:
        resume(connection, id, clock=bench.clock)
    assert bench.run() == 1
    assert (bench.found(id).state, bench.found(id).attempts) == (State.DONE, 1)


def test_a_worker_that_ends_in_a_run_leaves_it_to_others_at_once(engine: Engine) -> None:
    ends = True

    @workflow
    def flow(run: Run) -> None:
        if ends:
            raise KeyboardInterrupt

    bench = Bench(engine, flow)
    id = bench.start(flow)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.found(id).state == State.WAITING
    ends = False
    assert bench.run() == 1


def test_a_run_holds_on_between_its_steps_and_does_not_wait_for_one_of_its_own(engine: Engine) -> None:
    """A beat in a transaction beside that of a step would wait until the step ends."""
    beats: list[float] = []

    @workflow
    def flow(run: Run) -> None:
        beats.append(drive(run.beat()))
        with run.step("book") as step:
            book(step.connection(), "one")
            beats.append(drive(run.beat()))
        beats.append(drive(run.beat()))

    bench = Bench(engine, flow, lease_ms=30_000)
    bench.start(flow)
    bench.run()
    assert beats == [10.0, 1.0, 10.0]


def test_each_pause_is_twice_as_long_as_the_one_before_up_to_a_limit() -> None:
    pauses = [after_error(attempts, 100, is_passing=False).pause_ms for attempts in range(1, 100)]
    assert pauses[:4] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS, 8 * PAUSE_MS]
    assert set(pauses[20:]) == {PAUSE_MS_MAX}
