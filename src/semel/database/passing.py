"""Whether an error of the database passes by itself: somebody else was in the way, or the database was away.

One rule for all rooms that wait. It reads what the database says, and never waits. An error that was raised because of
another one is judged by that, unless it says enough itself. Errors that were raised together are judged one by one.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from semel.database.saying import sqlite_code

# Classes of SQLSTATE that pass: lost connections, conflicts with others, too few resources, locks, a server that ends.
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "57"})
# Of class 55 the locks alone; the rest is said of a statement that never works. 25006: written to a server that has
# just become a standby.
_PASSING_STATES: Final = frozenset({"55P03", "55006", "25006"})
# What SQLite says while somebody else writes, by its numbers: BUSY, LOCKED, IOERR, FULL, PROTOCOL.
_PASSING_CODES: Final = frozenset({5, 6, 10, 13, 15})
_NO_CONNECTION: Final = frozenset({"psycopg.OperationalError", "psycopg2.OperationalError"})


def is_passing(error: BaseException) -> bool:
    """Whether waiting mends it. What no database has said does not pass."""
    return all(
        next((verdict for one in causes(single) if (verdict := _verdict(one)) is not None), False)
        for single in singly(error)
    )


def singly(error: BaseException) -> Iterator[BaseException]:
    """Those of a group, as a `TaskGroup` raises it, or the error itself. What passes in one of them does not mend the
    others, so each has to pass."""
    group = next((one for one in causes(error) if isinstance(one, BaseExceptionGroup)), None)
    if group is None:
        yield error
        return
    for member in group.exceptions:
        yield from singly(member)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised because of, and so on."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _verdict(error: BaseException) -> bool | None:
    """None where it does not say."""
    if isinstance(error, PoolExhausted):
        return True
    if not isinstance(error, DBAPIError):
        return _verdict_of_driver(error)
    if error.connection_invalidated:
        return True
    verdict = _verdict_of_statement(error.orig)
    # A connection that could not be made, or was lost in its COMMIT, says no SQLSTATE, and there is no statement. Where
    # there is one, the connection is still there, and what could not be sent, such as too many values, never can be. Of
    # an InterfaceError nothing follows: asyncpg raises it for a value that does not fit, too.
    return isinstance(error, OperationalError) and error.statement is None if verdict is None else verdict


def _verdict_of_driver(raised: BaseException) -> bool | None:
    """The exception of a driver, also where an application uses one by itself."""
    verdict = _verdict_of_statement(raised)
    # So psycopg says that a connection could not be made, or was lost.
    return True if verdict is None and is_of_a_kind(raised, _NO_CONNECTION) else verdict


def _verdict_of_statement(raised: Any) -> bool | None:
    """By what the database itself has said of a statement."""
    code = sqlite_code(raised)
    if code is not None:
        return code in _PASSING_CODES
    if isinstance(raised, sqlite3.Error):
        return False
    sqlstate = getattr(raised, "sqlstate", None) or getattr(raised, "pgcode", None)
    return sqlstate[:2] in _PASSING_CLASSES or sqlstate in _PASSING_STATES if isinstance(sqlstate, str) else None


def is_of_a_kind(error: BaseException, names: frozenset[str]) -> bool:
    """By the full names of its classes: who has such an error has imported them, and who has not need not."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in names for kind in type(error).__mro__)
