"""The rule of recorded steps, for HTTP keys and workflows alike, and the states of a workflow. Pure: no IO, no clock.

**Code outside of a step runs again each time that its request or workflow is tried again, and so does a step that was
not recorded. A recorded step does not: its result commits in one transaction with what was done on its connection, and
every later attempt finds that result and passes the step by.** Between a call to another system and the record of its
step the process may die; then the next attempt makes the call again, under the same derived key. A step whose call
takes no key is noted before it begins, so that the next attempt knows that the call may have been made.
"""

import json
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

# The result of a step that has begun. No JSON text is empty.
STEP_BEGUN: Final = ""
# The limit for names, which are part of a row's primary key.
STEP_CHARACTERS_MAX: Final = 255


class Standing(NamedTuple):
    """What an attempt finds of a step."""

    is_first: bool
    """Whether the step has to be done."""
    is_in_doubt: bool
    """Whether an earlier attempt may have made its call, without a key."""
    result: Any


def standing(noted: str | None) -> Standing:
    """`noted` is the step's row: None, STEP_BEGUN, or the result as JSON. A step in doubt stays so if its call takes a
    key now: it took none then, so the other side would not know it again."""
    if noted:
        return Standing(False, False, json.loads(noted))
    return Standing(True, noted == STEP_BEGUN, None)


def check_name(name: str) -> None:
    if not 1 <= len(name) <= STEP_CHARACTERS_MAX:
        raise ValueError(f"the name of a step has 1 to {STEP_CHARACTERS_MAX} characters")


def check_order(name: str, inside: str | None, done: Collection[str]) -> None:
    """Refuse a step inside of another one, and a second step of one name. `done` has the steps that this attempt is
    done with; one that has failed is not, and may be tried again."""
    if inside is not None:
        raise RuntimeError(f"step {name!r} begins inside of step {inside!r}: end that one first")
    if name in done:
        raise RuntimeError(
            f"this attempt has a step {name!r} already, so a second one would get the result of the first and never be "
            f"done: give it a name of its own, such as {name + '-2'!r}; in a loop, put the id of the item into the name"
        )


# -- the states of a workflow ------------------------------------------------------------------------------------------


# A workflow that takes its worker down each time it is begun would do so for ever.
ATTEMPTS_MAX: Final = 100
# The pauses before a workflow that has raised is tried again: each twice as long as the one before.
PAUSE_MS: Final = 1_000
PAUSE_MS_MAX: Final = 5 * 60 * 1000


class State(StrEnum):
    """The state of a workflow. A worker may take one that waits or runs when it is due: the lease of its holder is over
    then."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


# The states in which it has not ended.
OPEN: Final = (State.RUNNING, State.WAITING)


class Due(NamedTuple):
    """A workflow that is due, of one queue."""

    id: str
    state: str
    attempts: int
    deadline_ms: int | None


def hopeless(due: Due, at_ms: int) -> str | None:
    """Why it is not begun any more."""
    if due.deadline_ms is not None and due.deadline_ms <= at_ms:
        return "its deadline is over"
    if due.attempts >= ATTEMPTS_MAX:
        return f"it was begun {ATTEMPTS_MAX} times, and no worker came to its end: semel steps resume tries again"
    return None


def chosen(due: Sequence[Due], running: int, running_max: int | None) -> list[Due]:
    """Which of a queue are taken. One whose holder is gone still counts as running, so to take it over adds none; and
    none is added while as many run as may."""
    free = len(due) if running_max is None else running_max - running
    taken = []
    for one in due:
        if one.state == State.RUNNING:
            taken.append(one)
        elif free > 0:
            free -= 1
            taken.append(one)
    return taken


class Next(NamedTuple):
    """The next state of a workflow whose function has raised."""

    state: State
    pause_ms: int = 0


def after_error(attempts: int, tries: int, *, is_passing: bool) -> Next:
    """It waits if it may be tried again, or if the error passes by itself; otherwise it has failed."""
    if is_passing:
        return Next(State.WAITING, PAUSE_MS)
    if attempts < tries:
        return Next(State.WAITING, min(PAUSE_MS << min(attempts - 1, 20), PAUSE_MS_MAX))
    return Next(State.FAILED)


def may_resume(state: str, due_ms: int | None, at_ms: int) -> bool:
    """Whether nobody works on it."""
    return state != State.RUNNING or (due_ms is not None and due_ms <= at_ms)
