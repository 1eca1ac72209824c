"""Workflows: functions of named, recorded steps, which a worker runs to their end over crashes and restarts.

    @workflow
    def order(run, number):
        charge = run.call("charge", lambda key: bank.charge(number, idempotency_key=key))
        run.sleep("until it may be sent", 3600)
        with run.step("book") as step:
            if step.first:
                step.connection().execute(...)
        return charge

The function runs again from its beginning in each attempt, and passes by the steps that are recorded. So it must take
the same way each time: what is random, or read from elsewhere, belongs into a step.
"""

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

from sqlalchemy import Connection

from semel.database import AsyncHandle, Handle, within, within_async
from semel.database.clock import Clock, now_ms, time_by
from semel.database.keys import derived_key
from semel.database.kinds import WrongKind
from semel.database.procedures import Procedure, drive, drive_async
from semel.steps import ledger
from semel.steps.counters import REPEATED
from semel.steps.ledger import Taken, WorkflowRefused, name_of
from semel.steps.recorded import AsyncStep, Recording, Step
from semel.steps.records import finish_step
from semel.steps.rules import STEP_CHARACTERS_MAX, State, check_name, check_order
from semel.steps.transactions import NewTransaction, briefly

T = TypeVar("T")

QUEUE: Final = "default"


class Waits(BaseException):
    """Leaves the function of a workflow that sleeps: nothing is held meanwhile, and another run goes on afterwards."""


class AnyRun(Recording):
    """One attempt to run a workflow."""

    def __init__(self, taken: Taken, new: NewTransaction, lease_ms: int, clock: Clock, *, confirms: bool) -> None:
        super().__init__(name_of(taken.id), f"workflow {taken.id!r}", lease_ms, new, new, confirms=confirms)
        self.id = taken.id
        self.taken = taken
        self._clock = clock

    def hold(self, connection: Connection) -> None:
        ledger.hold(connection, self.taken, self.lease_ms, self._clock)

    def look(self, connection: Connection, step: str) -> str | None:
        if step == self.taken.again_from:
            ledger.begin_again(connection, self.taken, self.done)
        noted = super().look(connection, step)
        ledger.check_in_time(connection, self.taken, self._clock)
        return noted

    def derived_key(self, step: str) -> str:
        """The key for the call that this step makes: the same in every run, and different for everybody else, also for
        a workflow that has this id after this one was deleted."""
        return derived_key(self.name.scope, self.name.key, self.taken.instance, step)

    def count_doubt(self, step: str) -> None:
        REPEATED.add(self.taken.workflow)

    def _sleep(self, name: str, seconds: float) -> Procedure[None]:
        def wait(connection: Connection) -> bool:
            noted, at_ms = self.look(connection, name), time_by(self._clock, connection)
            until_ms = json.loads(noted) if noted else at_ms + round(seconds * 1000)
            if not noted:
                finish_step(connection, self.name, name, json.dumps(until_ms))
            if until_ms <= at_ms:
                return False
            # A workflow that sleeps beyond its deadline fails at the deadline.
            until_ms = min(until_ms, self.taken.deadline_ms or until_ms)
            ledger.end(connection, self.taken, State.WAITING, self._clock, until_ms=until_ms, begins_anew=True)
            return True

        check_name(name)
        check_order(name, self.inside, self.done)
        if (yield from briefly(self.new, wait)):
            raise Waits
        self.done.add(name)


class Run(AnyRun):
    """What a function gets: `run.step`, `run.call` and `run.sleep`; `run.id` is the id of the workflow."""

    def step(self, name: str, *, unkeyed: bool = False) -> Step:
        """`with run.step("book") as step:`. Do the work if `step.first`; what is done on `step.connection()` commits
        with `step.result`. `unkeyed` says that its call takes no key, and so may be made twice."""
        return Step(self, name, unkeyed)

    def call(self, name: str, function: Callable[[str], T]) -> T:
        """A step that calls another system, or a tool: `function` gets a key that is the same in every attempt, and its
        result is recorded as JSON."""
        with self.step(name) as step:
            if step.first:
                step.result = function(step.derived_key)
        result: T = step.result
        return result

    def sleep(self, name: str, seconds: float) -> None:
        """Wait until then, over restarts, without a worker. The code before it runs again afterwards."""
        drive(self._sleep(name, seconds))


class AsyncRun(AnyRun):
    """What a coroutine function gets: `async with run.step`, `await run.call` and `await run.sleep`."""

    def step(self, name: str, *, unkeyed: bool = False) -> AsyncStep:
        """As that of Run."""
        return AsyncStep(self, name, unkeyed)

    async def call(self, name: str, function: Callable[[str], Awaitable[T]]) -> T:
        """As that of Run."""
        async with self.step(name) as step:
            if step.first:
                step.result = await function(step.derived_key)
        result: T = step.result
        return result

    async def sleep(self, name: str, seconds: float) -> None:
        """As that of Run."""
        await drive_async(self._sleep(name, seconds))


Function: TypeAlias = Callable[..., Any]


class Workflow:
    """A function that a worker runs: it gets a Run, or an AsyncRun if it is a coroutine function, and the arguments."""

    def __init__(self, function: Function, name: str, tries: int) -> None:
        if not callable(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise WrongKind(f"a workflow is a function without a `yield`, and not {function!r}")
        if tries < 1:
            raise ValueError(f"a workflow has 1 try or more, and not {tries}")
        self.function = function
        self.name = name
        self.tries = tries
        self.is_asynchronous = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)

    def check_arguments(self, arguments: tuple[Any, ...]) -> None:
        self._signature.bind(None, *arguments)


@overload
def workflow(function: Function) -> Workflow: ...
@overload
def workflow(*, name: str | None = None, tries: int = 1) -> Callable[[Function], Workflow]: ...
def workflow(
    function: Function | None = None, *, name: str | None = None, tries: int = 1
) -> Workflow | Callable[[Function], Workflow]:
    """Make a workflow of a function. Its rows have `name`, by default the function's. If the function raises, it is run
    again until it has had `tries`, with longer and longer pauses; then the workflow has failed."""

    def decorated(one: Function) -> Workflow:
        return Workflow(one, name or str(getattr(one, "__name__", one)), tries)

    return decorated if function is None else decorated(function)


def start(
    handle: Handle,
    flow: Workflow,
    *arguments: Any,
    id: str | None = None,
    queue: str = QUEUE,
    delay_seconds: float = 0,
    deadline_seconds: float | None = None,
    clock: Clock = now_ms,
) -> str:
    """Have a worker run this workflow once the transaction has committed, and return its id. Arguments are values that
    JSON can hold. A second start with the same `id` is the first one."""
    adding = _adding(flow, arguments, id, queue, delay_seconds, deadline_seconds, clock)
    with within(handle) as connection:
        return adding(connection)


async def start_async(
    handle: AsyncHandle,
    flow: Workflow,
    *arguments: Any,
    id: str | None = None,
    queue: str = QUEUE,
    delay_seconds: float = 0,
    deadline_seconds: float | None = None,
    clock: Clock = now_ms,
) -> str:
    """`start` on an asynchronous connection or session."""
    return await within_async(handle, _adding(flow, arguments, id, queue, delay_seconds, deadline_seconds, clock))


def _adding(
    flow: Workflow,
    arguments: tuple[Any, ...],
    id: str | None,
    queue: str,
    delay_seconds: float,
    deadline_seconds: float | None,
    clock: Clock,
) -> Callable[[Connection], str]:
    if not isinstance(flow, Workflow):
        raise WrongKind(f"{flow!r} is no workflow: put @workflow before the function")
    flow.check_arguments(arguments)
    if id is not None and not 1 <= len(id) <= STEP_CHARACTERS_MAX:
        raise WorkflowRefused(f"the id of a workflow has 1 to {STEP_CHARACTERS_MAX} characters")
    deadline_ms = None if deadline_seconds is None else round(deadline_seconds * 1000)
    return lambda connection: ledger.add(
        connection,
        *(flow.name, arguments),
        id=id,
        queue=queue,
        delay_ms=round(delay_seconds * 1000),
        deadline_ms=deadline_ms,
        clock=clock,
    )


def look_up(handle: Handle, id: str) -> ledger.Found:
    """The state and the result of a workflow."""
    with within(handle) as connection:
        return ledger.look_up(connection, id)


def cancel(handle: Handle, id: str, *, clock: Clock = now_ms) -> None:
    """End a workflow when the transaction commits. A worker that runs it records nothing more, and finds out at its
    next step."""
    with within(handle) as connection:
        ledger.cancel(connection, id, clock)


def resume(handle: Handle, id: str, from_step: str | None = None, *, clock: Clock = now_ms) -> None:
    """Have a workflow that has failed, waits or was cancelled go on after its last recorded step; or have the step
    `from_step` and all later ones done again, also in one that is done. It has no deadline any more."""
    with within(handle) as connection:
        ledger.resume(connection, id, from_step, clock)
