"""What the errors of a database mean: a missing table, or a fault that passes.

One rule for all rooms that wait says which errors pass; `dialects` says it of each database's codes. This module must
never wait.
"""

import contextlib
import os
from collections.abc import Iterator
from traceback import extract_tb
from typing import Final

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from semel.database.dialects import DIALECTS, is_of_a_kind


def raised_by(error: BaseException) -> BaseException | None:
    """What the driver has raised, whose text has neither the statement nor its values; or the error itself."""
    return error.orig if isinstance(error, DBAPIError) else error


def one_line(error: Exception) -> str:
    """What the database says, in one line."""
    raised = raised_by(error)
    said = next((text for dialect in DIALECTS if (text := dialect.text_of(raised)) is not None), str(raised))
    return said.strip().partition("\n")[0]


def kind_of(error: BaseException) -> str:
    """The class of an error and the line that raised it, for readers who must not see its text."""
    frames = extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


# -- a table of semel's is missing -------------------------------------------------------------------------------------


# It has the real command but not the real URL, which may contain a password.
REMEDY: Final = "make semel's tables by: semel schema --database URL"


def is_missing_table(error: DBAPIError) -> bool:
    """Whether a table of semel's is missing."""
    raised = error.orig
    return "semel_" in str(raised) and any(dialect.is_missing_table(raised) for dialect in DIALECTS)


@contextlib.contextmanager
def told_remedy() -> Iterator[None]:
    """Adds the remedy to the error of a missing table, at the end of its traceback."""
    try:
        yield
    except DBAPIError as error:
        if is_missing_table(error) and REMEDY not in getattr(error, "__notes__", ()):
            error.add_note(REMEDY)
        raise


# -- errors that pass by themselves ------------------------------------------------------------------------------------


def is_passing(error: BaseException) -> bool:
    """Whether the error passes by itself. An error that is not from a database does not."""
    return all(
        next((verdict for one in causes(single) if (verdict := _verdict(one)) is not None), False)
        for single in singly(error)
    )


def singly(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, as a `TaskGroup` raises it, or the error itself. A group passes only if each of its errors
    does."""
    group = next((one for one in causes(error) if isinstance(one, BaseExceptionGroup)), None)
    if group is None:
        yield error
        return
    for member in group.exceptions:
        yield from singly(member)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then its cause, and so on."""
    visited: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in visited:
        visited.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _verdict(error: BaseException) -> bool | None:
    """Whether this error passes; None if it does not show."""
    if isinstance(error, PoolExhausted):
        return True
    if not isinstance(error, DBAPIError):
        return _verdict_of_driver(error)
    if error.connection_invalidated:
        return True
    verdict = _verdict_of_statement(error.orig)
    # The error of a connection that could not be made, or was lost in its COMMIT, has no SQLSTATE and no statement. If
    # it has a statement, the connection is still open, and a statement that could not be sent (too many values) never
    # can be. An InterfaceError decides nothing: asyncpg also raises it for a value that does not fit.
    return isinstance(error, OperationalError) and error.statement is None if verdict is None else verdict


def _verdict_of_driver(raised: BaseException) -> bool | None:
    """The same for a driver's exception, because an application may also use a driver directly."""
    verdict = _verdict_of_statement(raised)
    is_lost = any(is_of_a_kind(raised, dialect.no_connection) for dialect in DIALECTS)
    return True if verdict is None and is_lost else verdict


def _verdict_of_statement(raised: BaseException | None) -> bool | None:
    """The verdict by the code that the database has given for a statement."""
    verdicts = (dialect.is_passing(raised) for dialect in DIALECTS)
    return next((verdict for verdict in verdicts if verdict is not None), None)


def is_conflict(error: BaseException) -> bool:
    """Whether a transaction was given up because of another one, and may succeed when it is repeated."""
    raised = raised_by(error)
    return any(dialect.is_conflict(raised) for dialect in DIALECTS)
