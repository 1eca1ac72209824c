"""The clocks of outbox, inbox and HTTP keys. Times are milliseconds since 1970."""

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from sqlalchemy import BigInteger, ColumnElement, Connection, literal_column, select

Clock: TypeAlias = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


POSTGRESQL_NOW_MS: Final[ColumnElement[int]] = literal_column(
    "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)", BigInteger
)
_SELECT_NOW_MS: Final = select(POSTGRESQL_NOW_MS)


def database_now_ms(connection: Connection) -> int:
    """A time that is the same for all clients of the database. SQLite is used on one machine, so it is that machine's
    clock."""
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(_SELECT_NOW_MS) or 0)
    return now_ms()


def time_by(clock: Clock, connection: Connection) -> int:
    """The time by this clock; in place of the machine's own, by the database's."""
    return database_now_ms(connection) if clock is now_ms else clock()
