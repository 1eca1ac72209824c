"""What a workflow promises while nobody dies: names, sleeps, deadlines, tries, queues, cancel and resume."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from flows import all_booked, book
from sqlalchemy import Engine
from sqlalchemy.exc import TimeoutError as PoolExhausted

from databases import async_engine_of
from semel.database import within
from semel.database.keys import derived_key
from semel.database.kinds import WrongKind
from semel.steps import (
    AsyncRun,
    Found,
    Run,
    State,
    Worker,
    Workflow,
    WorkflowRefused,
    cancel,
    look_up,
    reap,
    resume,
    start,
    start_async,
    workflow,
)
from semel.steps.rules import ATTEMPTS_MAX
from semel.testing.clock import Clock


class Bench:
    """Starts workflows and runs what is due, by a clock that the test moves."""

    def __init__(self, engine: Engine, *flows: Workflow, **options: Any) -> None:
        self.engine = engine
        self.clock = Clock()
        self.worker = Worker(engine, flows, clock=self.clock, **options)

    def start(self, flow: Workflow, *arguments: Any, **options: Any) -> str:
        with self.engine.begin() as connection:
            return start(connection, flow, *arguments, clock=self.clock, **options)

    def run(self, seconds: float = 0) -> int:
        self.clock.ms += round(seconds * 1000)
        return self.worker.drain()

    def found(self, id: str) -> Found:
        with self.engine.begin() as connection:
            return look_up(connection, id)


def test_a_second_step_of_one_name_is_refused_and_nothing_of_it_is_done(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        for _ in range(2):
            with run.step("book") as step:
                if step.first:
                    book(step.connection(), "one")

    bench = Bench(engine, flow)
    id = bench.start(flow)
    bench.run()
    assert bench.found(id).state == State.FAILED
    assert "this attempt has a step 'book' already" in bench.found(id).result
    assert all_booked(engine) == ["one"]


def test_a_call_gets_the_same_key_in_each_try_and_its_result_is_kept(engine: Engine) -> None:
    keys: list[str] = []
    instance: list[str] = []

    @workflow(tries=2)
    def flow(run: Run) -> str:
        instance.append(run.taken.instance)
        charged = run.call("charge", lambda key: keys.append(key) or "ch_1")
        run.call("mail", lambda key: keys.append(key) or (1 // (len(keys) - 2)))
        return charged

    bench = Bench(engine, flow)
    id = bench.start(flow, id="order-7")
    # A pause lies between the tries.
    assert (bench.run(), bench.run(), bench.run(1)) == (1, 0, 1)
    assert (bench.found(id).state, bench.found(id).result) == (State.DONE, "ch_1")
    assert keys[0] == derived_key("workflow", "order-7", instance[0], "charge")
    assert keys[1] == keys[2] == derived_key("workflow", "order-7", instance[1], "mail")


def test_of_the_tries_the_first_and_the_last_show_a_traceback_and_the_others_one_line(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(tries=4)
    def flow(run: Run) -> None:
        raise ValueError("the bank\nsays \x1b[2J")

    bench = Bench(engine, flow)
    bench.start(flow, id="order-7")
    assert (bench.run(), bench.run(1), bench.run(2), bench.run(4)) == (1, 1, 1, 1)
    told = [record for record in caplog.records if record.name == "semel.steps"]
    assert [record.exc_info is not None for record in told] == [True, False, False, True]
    waiting = r"workflow 'order-7' (flow) raised, and is waiting: ValueError: the bank says \x1b[2J"
    assert [record.getMessage() for record in told[:-1]] == [waiting] * 3
    assert "is failed: ValueError: the bank" in told[-1].getMessage()


def test_a_result_is_the_same_in_the_run_that_records_it_and_in_those_after(engine: Engine) -> None:
    results: list[object] = []

    @workflow(tries=2)
    def flow(run: Run) -> None:
        results.append(run.call("look", lambda key: (1, {2: "two"})))
        if len(results) == 1:
            raise ValueError

    bench = Bench(engine, flow)
    bench.start(flow)
    assert (bench.run(), bench.run(1)) == (1, 1)
    assert results == [[1, {"2": "two"}]] * 2


def test_an_error_that_passes_by_itself_takes_no_try(engine: Engine) -> None:
    tries: list[int] = []

    @workflow
    def flow(run: Run) -> str:
        tries.append(1)
        if len(tries) < 4:
            raise PoolExhausted
        return "there again"

    bench = Bench(engine, flow)
    id = bench.start(flow)
    assert [bench.run(1) for _ in range(4)] == [1, 1, 1, 1]
    assert (bench.found(id).state, bench.found(id).attempts) == (State.DONE, 1)


def test_a_workflow_that_is_started_twice_under_one_id_is_one(engine: Engine) -> None:
    @workflow
    def flow(run: Run, number: int) -> None:
        with run.step("book") as step:
            if step.first:
                book(step.connection(), str(number))

    bench = Bench(engine, flow)
    assert bench.start(flow, 1, id="a") == bench.start(flow, 1, id="a") == "a"
    assert bench.start(flow, {"x": 1, "y": 2}, id="b") == bench.start(flow, {"y": 2, "x": 1}, id="b") == "b"
    with engine.begin() as connection:
        cancel(connection, "b")
    with pytest.raises(WorkflowRefused, match="other arguments"):
        bench.start(flow, 2, id="a")
    with pytest.raises(TypeError, match="number"):
        bench.start(flow)
    assert bench.run() == 1
    assert all_booked(engine) == ["1"]


def test_a_workflow_exists_only_if_its_transaction_commits(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        raise AssertionError

    bench = Bench(engine, flow)
    with engine.connect() as connection, within(connection):
        start(connection, flow)
        connection.rollback()
    assert bench.run() == 0


def test_a_sleep_holds_nothing_and_goes_on_in_another_worker(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> str:
        run.sleep("night", 3600)
        return "awake"

    bench = Bench(engine, flow)
    id = bench.start(flow, delay_seconds=5)
    assert (bench.run(4), bench.run(1), bench.run(3599)) == (0, 1, 0)
    bench.worker = Worker(engine, [flow], clock=bench.clock)
    assert bench.run(1) == 1
    assert bench.found(id).result == "awake"


def test_a_workflow_fails_at_its_deadline_also_while_it_sleeps(engine: Engine) -> None:
    @workflow
    def flow(run: Run, sleeps: bool) -> None:
        if sleeps:
            run.sleep("night", 3600)
        bench.clock.ms += 10_000
        with run.step("book") as step:
            book(step.connection(), "too late")

    bench = Bench(engine, flow)
    ids = [bench.start(flow, sleeps, deadline_seconds=10) for sleeps in (True, False)]
    bench.run()
    bench.run(10)
    assert [bench.found(id).state for id in ids] == [State.FAILED, State.FAILED]
    assert all("deadline" in bench.found(id).result for id in ids)
    assert all_booked(engine) == []


def test_a_workflow_that_is_cancelled_records_nothing_more(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        with run.step("book") as step:
            if step.first:
                book(step.connection(), "first")
        with engine.begin() as connection:
            cancel(connection, run.id, clock=bench.clock)
        with run.step("late") as step:
            book(step.connection(), "late")

    bench = Bench(engine, flow)
    running, waiting = bench.start(flow), bench.start(flow, delay_seconds=5)
    with engine.begin() as connection:
        cancel(connection, waiting, clock=bench.clock)
    assert bench.run() == 1
    assert [bench.found(id).state for id in (running, waiting)] == [State.CANCELLED, State.CANCELLED]
    assert all_booked(engine) == ["first"]
    with engine.begin() as connection, pytest.raises(WorkflowRefused, match="ended already"):
        cancel(connection, running)


def test_a_run_that_another_worker_has_taken_over_writes_nothing_while_that_one_runs(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        with run.step("book") as step:
            if step.first:
                book(step.connection(), "first")
        bench.clock.ms += 30_000
        assert len(drive_take(Worker(engine, [flow], clock=bench.clock), 1)) == 1
        with run.step("late") as step:
            book(step.connection(), "late")

    bench = Bench(engine, flow)
    id = bench.start(flow)
    assert bench.run() == 1
    assert (bench.found(id).state, bench.found(id).attempts) == (State.RUNNING, 2)
    assert all_booked(engine) == ["first"]


def test_a_run_whose_workflow_was_deleted_writes_nothing_into_a_new_one_of_its_id(engine: Engine) -> None:
    keys: list[str] = []

    @workflow
    def flow(run: Run, amount: int) -> None:
        run.call("ask", lambda key: keys.append(key))
        if len(keys) == 1:
            with engine.begin() as connection:
                cancel(connection, "order-7")
            bench.clock.ms += 1000
            assert reap(engine, -1000) == 1
            bench.start(flow, 50, id="order-7")
            assert len(drive_take(bench.worker, 1)) == 1
        with run.step("charge") as step:
            book(step.connection(), str(amount))

    bench = Bench(engine, flow)
    bench.start(flow, 25, id="order-7")
    assert bench.run() == 1
    assert all_booked(engine) == []
    assert bench.run(30) == 1
    assert all_booked(engine) == ["50"]
    assert len(set(keys)) == 2


def test_a_run_whose_workflow_was_deleted_ends_and_its_worker_goes_on(engine: Engine) -> None:
    @workflow
    def flow(run: Run, has_steps: bool) -> None:
        with engine.begin() as connection:
            cancel(connection, run.id)
        reap(engine, -1000)
        if has_steps:
            with run.step("late") as step:
                book(step.connection(), "late")

    bench = Bench(engine, flow)
    for has_steps in (True, False):
        bench.start(flow, has_steps)
    assert bench.run() == 2
    assert all_booked(engine) == []


def test_a_step_that_began_before_the_deadline_is_recorded_after_it(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        with run.step("charge") as step:
            bench.clock.ms += 10_000
            book(step.connection(), "in time")
        run.call("ship", lambda key: pytest.fail("too late"))

    bench = Bench(engine, flow)
    id = bench.start(flow, deadline_seconds=10)
    bench.run()
    assert bench.found(id).state == State.FAILED
    assert all_booked(engine) == ["in time"]


def test_a_step_that_is_done_again_and_fails_is_in_doubt_when_the_run_tries_it_again(engine: Engine) -> None:
    doubts: list[bool] = []

    @workflow
    def flow(run: Run) -> None:
        for _ in range(2):
            with contextlib.suppress(ConnectionError), run.step("mail", unkeyed=True) as step:
                doubts.append(step.is_in_doubt)
                if len(doubts) == 2:
                    raise ConnectionError
                return

    bench = Bench(engine, flow)
    id = bench.start(flow)
    bench.run()
    with engine.begin() as connection:
        resume(connection, id, "mail", clock=bench.clock)
    bench.run()
    assert doubts == [False, False, True]


def test_an_error_without_a_text_fails_its_workflow_alone(engine: Engine) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    @workflow
    def flow(run: Run) -> None:
        raise Mute

    bench = Bench(engine, flow)
    ids = [bench.start(flow), bench.start(flow)]
    assert bench.run() == 2
    assert [bench.found(id).state for id in ids] == [State.FAILED, State.FAILED]


def test_a_cancellation_of_something_else_is_an_error_of_the_function(engine: Engine, url: str) -> None:
    @workflow
    async def flow(run: AsyncRun) -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other

    async def work() -> None:
        database = async_engine_of(url)
        async with database.begin() as connection:
            await start_async(connection, flow, id="a")
        assert await Worker(database, [flow]).drain_async() == 1
        await database.dispose()

    asyncio.run(work())
    with engine.begin() as connection:
        assert look_up(connection, "a").state == State.FAILED


def test_a_workflow_goes_on_after_its_last_step_or_from_the_one_that_is_named(engine: Engine) -> None:
    fails = True

    @workflow
    def flow(run: Run) -> int:
        for name in ("a", "b", "c"):
            with run.step(name) as step:
                if step.first:
                    book(step.connection(), name)
        if fails:
            raise ValueError("not yet")
        return 5

    bench = Bench(engine, flow)
    id = bench.start(flow)
    bench.run()
    assert (bench.found(id).state, bench.found(id).result) == (State.FAILED, "ValueError: not yet")
    fails = False
    for from_step, booked in ((None, "abc"), ("b", "abbcc"), ("c", "abbccc")):
        with engine.begin() as connection:
            if from_step:
                with pytest.raises(WorkflowRefused, match="no step 'd'"):
                    resume(connection, id, "d")
                with pytest.raises(WorkflowRefused, match="is done"):
                    resume(connection, id)
            resume(connection, id, from_step, clock=bench.clock)
        assert bench.run() == 1
        assert (bench.found(id).result, "".join(all_booked(engine))) == (5, booked)


def test_no_more_of_a_queue_run_than_may_and_one_whose_worker_is_gone_counts(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        ran.append(run.id)

    ran: list[str] = []
    bench = Bench(engine, flow, queues={"mail": 2})
    ids = [bench.start(flow, id=str(number), queue="mail") for number in range(4)]
    gone = Worker(engine, [flow], queues={"mail": 2}, clock=bench.clock)
    # A worker that takes and never comes back, and another one beside it.
    assert [len(drive_take(gone, count)) for count in (1, 3, 3)] == [1, 1, 0]
    assert bench.run() == 0
    bench.run(30)
    bench.run()
    assert sorted(ran) == ids


def drive_take(worker: Worker, count: int) -> list[Any]:
    from semel.database.procedures import drive

    return drive(worker._take(count))


def test_a_workflow_that_kills_every_worker_is_given_up(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        raise AssertionError

    bench = Bench(engine, flow)
    id = bench.start(flow)
    for _ in range(ATTEMPTS_MAX):
        assert len(drive_take(bench.worker, 1)) == 1
        bench.clock.ms += 30_000
    assert bench.run() == 0
    assert (bench.found(id).state, "100 times" in bench.found(id).result) == (State.FAILED, True)


def test_a_step_whose_call_takes_no_key_knows_that_it_may_have_been_made(engine: Engine) -> None:
    doubts: list[bool] = []

    @workflow(tries=2)
    def flow(run: Run) -> None:
        with run.step("mail", unkeyed=True) as step:
            doubts.append(step.is_in_doubt)
            if len(doubts) == 1:
                raise ConnectionError

    bench = Bench(engine, flow)
    bench.start(flow)
    bench.run()
    bench.run(1)
    assert doubts == [False, True]


def test_what_has_ended_is_deleted_after_its_time_and_nothing_else(engine: Engine) -> None:
    @workflow
    def flow(run: Run) -> None:
        run.sleep("night", 0)

    bench = Bench(engine, flow)
    ended = bench.start(flow)
    bench.run()
    waits = bench.start(flow)
    assert (reap(engine, 10**15), reap(engine, 0), reap(engine, 0)) == (0, 1, 0)
    assert bench.found(waits).state == State.WAITING
    with pytest.raises(WorkflowRefused):
        bench.found(ended)


def test_a_workflow_is_run_by_the_worker_of_its_kind_alone(engine: Engine) -> None:
    @workflow
    async def flow(run: AsyncRun) -> None: ...

    with pytest.raises(WrongKind, match="takes an AsyncEngine"):
        Worker(engine, [flow])
    with pytest.raises(WrongKind, match="put @workflow"), engine.begin() as connection:
        start(connection, print)  # type: ignore[arg-type]


def test_coroutines_sleep_call_and_book_as_functions_do(engine: Engine, url: str) -> None:
    clock = Clock()
    workers: list[Worker] = []

    @workflow
    async def flow(run: AsyncRun, number: int) -> int:
        async def charge(key: str) -> int:
            return len(key)

        charged = await run.call("charge", charge)
        await run.sleep("night", 60)
        async with run.step("book") as step:
            if step.first:
                connection = await step.connection()
                await connection.run_sync(book, str(number))
        workers[0].stop()
        return charged

    async def work() -> None:
        database = async_engine_of(url)
        async with database.begin() as connection:
            await start_async(connection, flow, 5, id="a", clock=clock)
        worker = Worker(database, [flow], clock=clock)
        assert await worker.drain_async() == 1
        clock.ms += 60_000
        workers.append(worker)
        await worker.run_async()
        await database.dispose()

    asyncio.run(work())
    with engine.begin() as connection:
        assert (look_up(connection, "a").state, look_up(connection, "a").result) == (State.DONE, 64)
    assert all_booked(engine) == ["5"]
