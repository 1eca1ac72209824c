"""The worker: takes workflows that are due, and runs each to its end, its next sleep, or its error.

Any number of workers may run on one database. A worker that dies loses its workflows when their leases are over, and
another one goes on after the last recorded steps; should the first one wake up again, it writes nothing. This module
must never end because the database is away for a time.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection

from semel.database import is_passing
from semel.database.clock import Clock, now_ms
from semel.database.errors import one_line
from semel.database.kinds import WrongKind, check_callable
from semel.database.procedures import Procedure, drive, drive_async
from semel.steps import ledger
from semel.steps.counters import RUNS
from semel.steps.heartbeat import beating, beating_in_thread
from semel.steps.ledger import DeadlineOver, Taken
from semel.steps.records import Fenced
from semel.steps.rules import State, after_error
from semel.steps.slots import Slots
from semel.steps.transactions import (
    AsyncDatabase,
    AsyncTransaction,
    Database,
    LoopTransaction,
    Transaction,
    begin_of,
    briefly,
    check_database,
    is_asynchronous,
    may_end_silently,
    transactions_max,
)
from semel.steps.workflows import QUEUE, AsyncRun, Run, Waits, Workflow

logger = logging.getLogger("semel.steps")

# Another worker goes on with a workflow this long after its worker has died; a living one renews its lease three times.
LEASE_MS: Final = 30_000
# How often a worker looks for workflows that are due.
POLL_SECONDS: Final = 1.0
# How many workflows a worker runs at once.
RUNS_MAX: Final = 10
# What an error says, in a row.
_ERROR_CHARACTERS_MAX: Final = 2_000
_ONE_QUEUE: Final[Mapping[str, int | None]] = MappingProxyType({QUEUE: None})


class Worker:
    """Runs these workflows. `queues` are those that it takes from, each with the number that may run at once in all
    workers together, or None. On an Engine, a sessionmaker or a function that begins a transaction it runs functions in
    threads; on an AsyncEngine or async_sessionmaker coroutine functions."""

    def __init__(
        self,
        database: Database | AsyncDatabase,
        workflows: Sequence[Workflow],
        *,
        queues: Mapping[str, int | None] = _ONE_QUEUE,
        runs_max: int = RUNS_MAX,
        lease_ms: int = LEASE_MS,
        poll_seconds: float = POLL_SECONDS,
        clock: Clock = now_ms,
    ) -> None:
        check_database(database)
        check_callable("clock", clock)
        self.is_asynchronous = is_asynchronous(database)
        self._workflows = {flow.name: flow for flow in workflows}
        if len(self._workflows) < len(workflows):
            raise ValueError("two of these workflows have one name: give one @workflow(name=...)")
        for flow in workflows:
            if flow.is_asynchronous != self.is_asynchronous:
                kind, engine = ("a coroutine function", "AsyncEngine") if flow.is_asynchronous else ("", "Engine")
                raise WrongKind(f"workflow {flow.name!r} is {kind or 'no coroutine function'}: it takes an {engine}")
        if min((runs_max, lease_ms, *(limit for limit in queues.values() if limit is not None))) < 1 or not queues:
            raise ValueError("there is a queue, and runs_max, lease_ms and the number of each queue are 1 or more")
        self._queues = dict(queues)
        self._runs_max = runs_max
        self._lease_ms = lease_ms
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._begin: Any = begin_of(database)
        self._slots = Slots(transactions_max(database), one_loop=True)
        self._confirms = may_end_silently(database)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run what is due, until `stop`; then what runs is brought to its end."""
        self._check(is_asynchronous=False)
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self._runs_max, "semel-steps") as pool:
            while not self._stopping.is_set():
                taken: list[Taken] = []
                try:
                    taken = drive(self._take(self._runs_max - len(running)))
                except Exception as error:
                    _outlive(error)
                running |= {pool.submit(self._execute, one) for one in taken}
                if running:
                    done, running = wait(running, self._poll_seconds, FIRST_COMPLETED)
                    for one in done:
                        one.result()
                else:
                    self._stopping.wait(self._poll_seconds)

    def drain(self) -> int:
        """Run what is due now, one after the other in this thread, and return how many runs that were."""
        self._check(is_asynchronous=False)
        runs = 0
        while taken := drive(self._take(1)):
            self._execute(taken[0])
            runs += 1
        return runs

    async def run_async(self) -> None:
        """`run` for coroutine functions."""
        self._check(is_asynchronous=True)
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while not self._stopping.is_set():
                taken: list[Taken] = []
                try:
                    taken = await drive_async(self._take(self._runs_max - len(running)))
                except Exception as error:
                    _outlive(error)
                running |= {group.create_task(self._execute_async(one)) for one in taken}
                if running:
                    _, running = await asyncio.wait(
                        running, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED
                    )
                else:
                    await asyncio.sleep(self._poll_seconds)

    async def drain_async(self) -> int:
        """`drain` for coroutine functions."""
        self._check(is_asynchronous=True)
        runs = 0
        while taken := await drive_async(self._take(1)):
            await self._execute_async(taken[0])
            runs += 1
        return runs

    def stop(self) -> None:
        """Let `run` return; for any thread or a signal handler. A stopped worker stays stopped."""
        self._stopping.set()

    role: Final = "active"

    def why_not_ready(self, behind_seconds: float) -> str:
        """Why this worker does not run what is due as it should, in a line for a probe; empty if it does. It asks the
        database, from any thread; a worker on an AsyncEngine cannot be asked."""
        self._check(is_asynchronous=False)
        queues, names, clock = self._queues, self._workflows, self._clock
        due_ms, at_ms = drive(
            briefly(self._new, lambda connection: ledger.oldest_due(connection, queues, names, clock))
        )
        age_seconds = 0.0 if due_ms is None else (at_ms - due_ms) / 1000
        return f"behind: a workflow has been due for {age_seconds:.0f} s" if age_seconds > behind_seconds else ""

    def _check(self, *, is_asynchronous: bool) -> None:
        if is_asynchronous != self.is_asynchronous:
            raise TypeError("a worker on an AsyncEngine has run_async and drain_async, others have run and drain")

    def _new(self) -> Transaction | LoopTransaction:
        return AsyncTransaction(self._begin, self._slots) if self.is_asynchronous else Transaction(self._begin)

    def _take(self, count: int) -> Procedure[list[Taken]]:
        if count < 1:
            return []
        taken: list[Taken] = []
        failed = 1
        # Those that only had to fail must not keep those after them waiting.
        while failed and not taken:
            taken, failed = yield from briefly(
                self._new,
                lambda connection: ledger.take(
                    connection, self._queues, self._workflows, count, self._lease_ms, self._clock
                ),
            )
        return taken

    def _execute(self, taken: Taken) -> None:
        flow = self._workflows[taken.workflow]
        run = Run(taken, self._new, self._lease_ms, self._clock, confirms=self._confirms)
        try:
            with beating_in_thread(run):
                result = json.dumps(flow.function(run, *taken.arguments))
        except BaseException as error:
            # In a thread nothing is cancelled.
            ends = not isinstance(error, Exception | Waits | asyncio.CancelledError)
            drive(self._end_by(flow, taken, error, ends=ends))
            if ends:
                raise
        else:
            drive(self._end(taken, State.DONE, result))

    async def _execute_async(self, taken: Taken) -> None:
        flow = self._workflows[taken.workflow]
        run = AsyncRun(taken, self._new, self._lease_ms, self._clock, confirms=self._confirms)
        try:
            async with beating(run):
                result = json.dumps(await flow.function(run, *taken.arguments))
        except BaseException as error:
            ends = not isinstance(error, Exception | Waits)
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None:
                # If nobody has cancelled the run, it is of something that its function has waited for.
                ends = task.cancelling() > 0
            await drive_async(self._end_by(flow, taken, error, ends=ends))
            if ends:
                raise
        else:
            await drive_async(self._end(taken, State.DONE, result))

    def _end_by(self, flow: Workflow, taken: Taken, error: BaseException, *, ends: bool) -> Procedure[None]:
        if isinstance(error, Waits):
            RUNS.add(flow.name, "waiting")
        elif isinstance(error, Fenced):
            _tell_of_fence(taken, error)
        elif ends:
            # This process ends, and another worker may go on at once.
            yield from self._end(taken, State.WAITING)
        else:
            passes = is_passing(error)
            following = after_error(taken.attempts, flow.tries, is_passing=passes)
            state = State.FAILED if isinstance(error, DeadlineOver) else following.state
            said = f"{type(error).__name__}: {_text(error)}"[:_ERROR_CHARACTERS_MAX]
            # A traceback at first and at last: those in between would be the same again.
            is_shown = state is State.FAILED or (taken.attempts == 1 and not passes)
            logger.warning(
                "workflow %r (%s) raised, and is %s: %s",
                *(taken.id, flow.name, state, _on_one_line(said)),
                exc_info=error if is_shown else None,
                extra=_ids_of(taken),
            )
            # What passes by itself takes no try.
            yield from self._end(taken, state, json.dumps(said), following.pause_ms, begins_anew=passes)

    def _end(
        self, taken: Taken, state: State, result: str | None = None, pause_ms: int = 0, *, begins_anew: bool = False
    ) -> Procedure[None]:
        def end(connection: Connection) -> None:
            ledger.end(
                *(connection, taken, state, self._clock), result=result, pause_ms=pause_ms, begins_anew=begins_anew
            )

        try:
            yield from briefly(self._new, end)
        except Fenced as fenced:
            _tell_of_fence(taken, fenced)
        except Exception as error:
            # It runs again when its lease is over, and passes by what is recorded.
            _outlive(error)
        else:
            RUNS.add(taken.workflow, state)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text raised an error of its own)"


def _on_one_line(text: str) -> str:
    """For a terminal, which takes commands from other characters."""
    line = " ".join(text.split())
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


def _tell_of_fence(taken: Taken, fenced: Fenced) -> None:
    RUNS.add(taken.workflow, "fenced")
    logger.warning("%s", fenced, extra=_ids_of(taken))


def _ids_of(taken: Taken) -> dict[str, str]:
    """For a log that keeps fields."""
    return {"workflow": taken.workflow, "id": taken.id}


def _outlive(error: Exception) -> None:
    """A worker goes on over an error of the database that passes by itself."""
    if not is_passing(error):
        raise error
    logger.warning("waiting for the database: %s", one_line(error))
