"""Reads and writes the rows of recorded steps, on a connection in the caller's transaction.

Only the holder of a request or a workflow may write, and has to check that it still is one in the same transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select, tuple_, update

from semel.database.dialects import insert_new, is_new
from semel.steps.rules import STEP_BEGUN
from semel.steps.tables import steps


@dataclass(frozen=True)
class Name:
    """What has steps: the digest of a caller and its key, or WORKFLOWS and an id."""

    scope: str
    key: str


class Fenced(RuntimeError):
    """Somebody else has taken over, because the lease of this holder had run out. This one has written nothing."""

    def __init__(self, title: str) -> None:
        super().__init__(f"the lease of {title} ran out and somebody else took it over: nothing was written")


# To make a statement takes longer than to execute it, so each is made once.
_OF_NAME: Final = steps.c.scope == bindparam("of_scope"), steps.c.key == bindparam("of_key")
_NOTED: Final = select(steps.c.result).where(*_OF_NAME, steps.c.step == bindparam("of_step"))
_BEGIN: Final = insert(steps)
_FINISH: Final = insert_new(steps)
# Replaces the note that the step has begun, and never a result.
_FINISH_BEGUN: Final = (
    update(steps)
    .where(*_OF_NAME, steps.c.step == bindparam("of_step"), steps.c.result == STEP_BEGUN)
    .values(result=bindparam("result"))
)


def noted_step(connection: Connection, name: Name, step: str) -> str | None:
    """The result of a step that was finished, as JSON; STEP_BEGUN if its call takes no key and may have been made."""
    of_step: dict[str, Any] = {"of_scope": name.scope, "of_key": name.key, "of_step": step}
    return connection.scalar(_NOTED, of_step)


def begin_step(connection: Connection, name: Name, step: str) -> None:
    """Note that a step whose call takes no key begins."""
    connection.execute(_BEGIN, {"scope": name.scope, "key": name.key, "step": step, "result": STEP_BEGUN})


def finish_step(connection: Connection, name: Name, step: str, result: str) -> None:
    """Store the result of a step, whether or not it was noted that it began: an attempt may be repeated after a release
    in which the call of the step has got a key."""
    row = {"scope": name.scope, "key": name.key, "step": step, "result": result}
    if is_new(connection, _FINISH, row):
        return
    of_step = {"of_scope": name.scope, "of_key": name.key, "of_step": step, "result": result}
    if not connection.execute(_FINISH_BEGUN, of_step).rowcount:
        raise RuntimeError(f"step {step!r} of {name.key!r} was finished meanwhile: nothing was written")


def forget_steps(connection: Connection, names: Sequence[Name]) -> None:
    """Delete the records of all steps of these."""
    pairs = [(name.scope, name.key) for name in names]
    connection.execute(delete(steps).where(tuple_(steps.c.scope, steps.c.key).in_(pairs)))
