"""The clocks of outbox, inbox and HTTP keys. Times are milliseconds since 1970."""

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from sqlalchemy import Connection, select

from semel.database.dialects import dialect_of, per_dialect

Clock: TypeAlias = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


_SELECT_NOW_MS: Final = per_dialect(lambda dialect: None if dialect.now_ms is None else select(dialect.now_ms))


def database_now_ms(connection: Connection) -> int:
    """A time that is the same for all clients of the database; the machine's, if they are all on one."""
    statement = _SELECT_NOW_MS[dialect_of(connection).name]
    return now_ms() if statement is None else int(connection.scalar(statement) or 0)


def time_by(clock: Clock, connection: Connection) -> int:
    """The time by this clock; in place of the machine's own, by the database's."""
    return database_now_ms(connection) if clock is now_ms else clock()
