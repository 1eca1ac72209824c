"""The rows of workflows: each statement about them, on a connection in the caller's transaction.

A workflow belongs to the run that has taken it last: its token is in the row. Each write of a holder names its token,
so a late one writes nothing. The clock is the database's, because the clocks of two machines may differ by more than a
lease. `rules.py` decides; this module must never do so.
"""

import json
import secrets
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    not_,
    select,
    update,
)

from semel.database.clock import Clock, database_now_ms, now_ms, time_by
from semel.database.dialects import Dialect, dialect_of, insert_new, is_new, per_dialect
from semel.database.errors import told_remedy
from semel.database.kinds import check_engine
from semel.steps.records import Fenced, Name, forget_steps
from semel.steps.rules import OPEN, Due, State, chosen, hopeless, may_resume
from semel.steps.tables import WORKFLOWS, steps, workflows

# The lock under which a queue with a limit is counted: the first of the two numbers is semel's.
_LOCK: Final = (1936026981, 3)
# Long enough to look at what has failed, and for a start to be repeated.
KEPT_MS: Final = 30 * 24 * 60 * 60 * 1000
# A token begins with random bits, which tell the workflow from one that had its id before and was deleted; the others
# count its holders.
_COUNTING_BITS: Final = 22
_RANDOM_BITS: Final = 62 - _COUNTING_BITS
# How many one transaction deletes.
REAPED_ROWS_MAX: Final = 1000


class Cancelled(Fenced):
    """The workflow was cancelled, ended, resumed or deleted by somebody. This run writes nothing more."""

    def __init__(self, id: str, state: str) -> None:
        RuntimeError.__init__(self, f"workflow {id!r} is {state}, and not this run's any more: nothing was written")


class DeadlineOver(RuntimeError):
    """The workflow did not end in time. No further step is done."""

    def __init__(self, id: str) -> None:
        super().__init__(f"the deadline of workflow {id!r} is over")


class WorkflowRefused(ValueError):
    """There is no such workflow, or not in this state, or its id belongs to another one."""


@dataclass(frozen=True)
class Taken:
    """A workflow that this worker has taken."""

    id: str
    workflow: str
    token: int
    attempts: int
    arguments: list[Any]
    again_from: str | None
    deadline_ms: int | None

    @property
    def instance(self) -> str:
        """The same in each run, and another one for a workflow that gets the id when this one was deleted."""
        return f"{self.token >> _COUNTING_BITS:x}"


@dataclass(frozen=True)
class Found:
    """A workflow as it stands."""

    id: str
    workflow: str
    queue: str
    state: State
    due_ms: int | None
    attempts: int
    result: Any
    """What its function has returned; if it has failed, what the error says."""
    added_ms: int
    ended_ms: int | None


def name_of(id: str) -> Name:
    return Name(WORKFLOWS, id)


def _given(name: str) -> ColumnElement[int]:
    return bindparam(name, type_=BigInteger)


def _now(dialect: Dialect) -> ColumnElement[int]:
    """The time in a statement. One that asks the server for it would be one more to wait for."""
    return _given("at_ms") if dialect.now_ms is None else func.coalesce(_given("at_ms"), dialect.now_ms)


def _at(connection: Connection, clock: Clock) -> dict[str, int | None]:
    return {"at_ms": None if clock is now_ms and dialect_of(connection).now_ms is not None else clock()}


_OF_ID: Final = workflows.c.id == bindparam("of_id")
_OF_HOLDER: Final = (_OF_ID, workflows.c.token == _given("of_token"), workflows.c.state == State.RUNNING)
_ADD: Final = insert_new(workflows)
_HOLD: Final = per_dialect(
    lambda dialect: update(workflows).where(*_OF_HOLDER).values(due_ms=_now(dialect) + _given("lease_ms"))
)
_ROW: Final = select(workflows).where(_OF_ID)
_CURRENT_ROW: Final = per_dialect(lambda dialect: dialect.current(_ROW))


# -- the application ---------------------------------------------------------------------------------------------------


def add(
    connection: Connection,
    workflow: str,
    arguments: Sequence[Any],
    *,
    id: str | None,
    queue: str,
    delay_ms: int,
    deadline_ms: int | None,
    clock: Clock,
) -> str:
    """Add a workflow, unless there is one of this id, with the same function and arguments."""
    at_ms = time_by(clock, connection)
    id = str(uuid.uuid4()) if id is None else id
    row = {
        "id": id,
        "workflow": workflow,
        "queue": queue,
        "state": State.WAITING,
        "due_ms": at_ms + delay_ms,
        "token": secrets.randbits(_RANDOM_BITS) << _COUNTING_BITS,
        "attempts": 0,
        "deadline_ms": None if deadline_ms is None else at_ms + deadline_ms,
        "arguments": json.dumps(list(arguments)),
        "added_ms": at_ms,
    }
    if not is_new(connection, _ADD, row):
        known = _current_row(connection, id)
        if known.workflow != workflow or _plain(known.arguments) != _plain(str(row["arguments"])):
            raise WorkflowRefused(
                f"the id {id!r} belongs to a workflow {known.workflow!r} with other arguments: take another id"
            )
    return id


def _plain(arguments: str) -> str:
    """Equal for equal values of JSON, whatever the order of the keys; text, because to Python 1 and true are equal."""
    return json.dumps(json.loads(arguments), sort_keys=True)


def look_up(connection: Connection, id: str) -> Found:
    return _found(_row(connection, id))


def listed(connection: Connection, states: Collection[str], rows_max: int) -> list[Found]:
    """The newest ones, of these states or of all."""
    query = select(workflows).order_by(workflows.c.added_ms.desc(), workflows.c.id).limit(rows_max)
    if states:
        query = query.where(workflows.c.state.in_(list(states)))
    return [_found(row) for row in connection.execute(query)]


def failed(connection: Connection) -> list[str]:
    """The ids of all that have failed."""
    query = select(workflows.c.id).where(workflows.c.state == State.FAILED)
    return list(connection.scalars(query.order_by(workflows.c.id)))


def steps_of(connection: Connection, id: str) -> dict[str, Any]:
    """The results of the steps that are recorded, by the steps' names; None for one that has begun without a key."""
    query = select(steps.c.step, steps.c.result).where(steps.c.scope == WORKFLOWS, steps.c.key == id)
    rows = connection.execute(query.order_by(steps.c.step))
    return {row.step: json.loads(row.result) if row.result else None for row in rows}


def cancel(connection: Connection, id: str, clock: Clock) -> None:
    """End it. Its holder, if there is one, writes nothing more; a step that is under way is not recorded."""
    values = {"state": State.CANCELLED, "due_ms": None, "ended_ms": time_by(clock, connection)}
    change = update(workflows).where(workflows.c.id == id, workflows.c.state.in_(OPEN))
    if not connection.execute(change.values(token=workflows.c.token + 1, **values)).rowcount:
        raise WorkflowRefused(f"workflow {id!r} has ended already: it is {_current_row(connection, id).state}")


def resume(connection: Connection, id: str, from_step: str | None, clock: Clock) -> None:
    """Have it go on after its last recorded step, or do this step and all later ones again. It has no deadline from
    now on."""
    row, at_ms = _row(connection, id, _ROW.with_for_update()), time_by(clock, connection)
    if not may_resume(row.state, row.due_ms, at_ms):
        raise WorkflowRefused(f"workflow {id!r} is running: cancel it first")
    if from_step is None and row.state == State.DONE:
        raise WorkflowRefused(f"workflow {id!r} is done: name the step from which on it is to be done again")
    if from_step is not None and from_step not in steps_of(connection, id):
        raise WorkflowRefused(f"workflow {id!r} has recorded no step {from_step!r}: semel steps show {id} names them")
    values = {"state": State.WAITING, "due_ms": at_ms, "attempts": 0, "deadline_ms": None, "again_from": from_step}
    change = update(workflows).where(workflows.c.id == id).values(token=row.token + 1, ended_ms=None, result=None)
    connection.execute(change.values(**values))


def reap(engine: Engine, kept_ms: int = KEPT_MS) -> int:
    """Delete the workflows that ended longer ago than this, with their steps, and return their number. Starts with
    their ids are new ones from then on."""
    check_engine("the engine", engine)
    reaped = 0
    while True:
        with told_remedy(), engine.begin() as connection:
            count = _reap_batch(connection, database_now_ms(connection) - kept_ms)
        reaped += count
        if count < REAPED_ROWS_MAX:
            return reaped


def _reap_batch(connection: Connection, ended_before_ms: int) -> int:
    ended = workflows.c.ended_ms < ended_before_ms
    due = select(workflows.c.id).where(ended).limit(REAPED_ROWS_MAX).with_for_update(skip_locked=True)
    ids = list(connection.scalars(due))
    connection.execute(delete(workflows).where(workflows.c.id.in_(ids)))
    forget_steps(connection, [name_of(id) for id in ids])
    return len(ids)


# -- the worker --------------------------------------------------------------------------------------------------------


def take(
    connection: Connection,
    queues: Mapping[str, int | None],
    names: Collection[str],
    count: int,
    lease_ms: int,
    clock: Clock,
) -> tuple[list[Taken], int]:
    """Take up to `count` workflows of these names that are due; of a queue with a number no more than may run. Also
    returns how many had to fail instead. The transaction must not have read anything."""
    if any(running_max is not None for running_max in queues.values()):
        # Two workers that count at once would both find room. It comes before the first read, because a transaction may
        # count by the snapshot of that one.
        dialect_of(connection).lock_until_end(connection, *_LOCK)
    taken: list[Taken] = []
    failed = 0
    for queue, running_max in queues.items():
        if len(taken) < count:
            more, over = _taken_of(connection, queue, running_max, names, count - len(taken), lease_ms, clock)
            taken, failed = taken + more, failed + over
    return taken, failed


def _taken_of(
    connection: Connection,
    queue: str,
    running_max: int | None,
    names: Collection[str],
    count: int,
    lease_ms: int,
    clock: Clock,
) -> tuple[list[Taken], int]:
    at_ms = time_by(clock, connection)
    # Those first whose holder is gone. On PostgreSQL it passes by those that somebody works on at the moment.
    columns = workflows.c.id, workflows.c.state, workflows.c.attempts, workflows.c.deadline_ms
    query = (
        select(*columns)
        .where(workflows.c.queue == queue, workflows.c.state.in_(OPEN), workflows.c.due_ms <= at_ms)
        .where(workflows.c.workflow.in_(list(names)))
        .order_by(workflows.c.state, workflows.c.due_ms, workflows.c.id)
        .limit(count)
        .with_for_update(skip_locked=True)
    )
    due = [Due(*row) for row in connection.execute(query)]
    reasons = {one.id: why for one in due if (why := hopeless(one, at_ms)) is not None}
    for id, why in reasons.items():
        values = {"state": State.FAILED, "due_ms": None, "result": json.dumps(why), "ended_ms": at_ms}
        change = update(workflows).where(workflows.c.id == id)
        connection.execute(change.values(token=workflows.c.token + 1, **values))
    if len(reasons) == len(due):
        return [], len(reasons)
    running = 0
    if running_max is not None:
        counted = select(func.count()).where(workflows.c.queue == queue, workflows.c.state == State.RUNNING)
        running = connection.scalar(counted) or 0
    begun = [one.id for one in chosen([one for one in due if one.id not in reasons], running, running_max)]
    change = update(workflows).where(workflows.c.id.in_(begun))
    values = {"state": State.RUNNING, "due_ms": at_ms + lease_ms}
    connection.execute(change.values(token=workflows.c.token + 1, attempts=workflows.c.attempts + 1, **values))
    rows = connection.execute(select(workflows).where(workflows.c.id.in_(begun)))
    return sorted((_taken(row) for row in rows), key=lambda one: begun.index(one.id)), len(reasons)


def oldest_due(
    connection: Connection, queues: Collection[str], names: Collection[str], clock: Clock
) -> tuple[int | None, int]:
    """Since when the oldest of what `take` would find is due, and the present time."""
    at_ms = time_by(clock, connection)
    due = workflows.c.queue.in_(list(queues)), workflows.c.state.in_(OPEN), workflows.c.workflow.in_(list(names))
    return connection.scalar(select(func.min(workflows.c.due_ms)).where(*due, workflows.c.due_ms <= at_ms)), at_ms


def hold(connection: Connection, taken: Taken, lease_ms: int, clock: Clock) -> None:
    """Keep it for another lease. Locks the row until the transaction ends."""
    values = {**_of(taken), **_at(connection, clock), "lease_ms": lease_ms}
    if not connection.execute(_HOLD[dialect_of(connection).name], values).rowcount:
        raise _refused(connection, taken)


def end(
    connection: Connection,
    taken: Taken,
    state: State,
    clock: Clock,
    *,
    result: str | None = None,
    pause_ms: int = 0,
    until_ms: int | None = None,
    begins_anew: bool = False,
) -> None:
    """End this run: with a result, or to wait for a pause or until a time. A workflow that sleeps has as many
    tries left as at first."""
    at_ms = time_by(clock, connection)
    is_open = state in OPEN
    due_ms = at_ms + pause_ms if until_ms is None else until_ms
    values: dict[str, Any] = {
        "state": state,
        "due_ms": due_ms if is_open else None,
        "result": result,
        "ended_ms": None if is_open else at_ms,
        "token": taken.token + 1,
        "attempts": 0 if begins_anew else taken.attempts,
    }
    if not connection.execute(update(workflows).where(*_OF_HOLDER).values(values), _of(taken)).rowcount:
        raise _refused(connection, taken)


def check_in_time(connection: Connection, taken: Taken, clock: Clock) -> None:
    """A step that has begun in time may end after it, because its call was made."""
    if taken.deadline_ms is not None and taken.deadline_ms <= time_by(clock, connection):
        raise DeadlineOver(taken.id)


def begin_again(connection: Connection, taken: Taken, passed: Collection[str]) -> None:
    """Forget the records of all steps but those that this run has passed; only once, also if its step fails and this
    run tries it again."""
    change = update(workflows).where(_OF_ID, workflows.c.again_from.is_not(None)).values(again_from=None)
    if not connection.execute(change, {"of_id": taken.id}).rowcount:
        return
    others = and_(steps.c.scope == WORKFLOWS, steps.c.key == taken.id, not_(steps.c.step.in_(list(passed))))
    connection.execute(delete(steps).where(others))


def _of(taken: Taken) -> dict[str, Any]:
    return {"of_id": taken.id, "of_token": taken.token}


def _refused(connection: Connection, taken: Taken) -> Fenced:
    """Why a holder's write has found no row."""
    row = connection.execute(_CURRENT_ROW[dialect_of(connection).name], {"of_id": taken.id}).one_or_none()
    if row is None:
        return Cancelled(taken.id, "deleted")
    is_taken_over = row.state == State.RUNNING
    return Fenced(f"workflow {taken.id!r}") if is_taken_over else Cancelled(taken.id, row.state)


def _current_row(connection: Connection, id: str) -> Row[Any]:
    """As it is after a write that has found it otherwise, whatever this transaction has seen before."""
    return _row(connection, id, _CURRENT_ROW[dialect_of(connection).name])


def _row(connection: Connection, id: str, query: Select[Any] = _ROW) -> Row[Any]:
    row = connection.execute(query, {"of_id": id}).one_or_none()
    if row is None:
        raise WorkflowRefused(f"there is no workflow {id!r}")
    return row


def _taken(row: Row[Any]) -> Taken:
    arguments = json.loads(row.arguments)
    return Taken(row.id, row.workflow, row.token, row.attempts, arguments, row.again_from, row.deadline_ms)


def _found(row: Row[Any]) -> Found:
    result = None if row.result is None else json.loads(row.result)
    columns = row.id, row.workflow, row.queue, State(row.state), row.due_ms, row.attempts
    return Found(*columns, result, row.added_ms, row.ended_ms)
