"""The clocks of outbox, inbox and HTTP keys. Times are milliseconds since 1970."""

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from sqlalchemy import Connection, text

Clock: TypeAlias = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


_POSTGRESQL_NOW: Final = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


def database_now_ms(connection: Connection) -> int:
    """A time that is the same for all clients of the database. SQLite is used on one machine, so it is that machine's
    clock."""
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(_POSTGRESQL_NOW) or 0)
    return now_ms()
