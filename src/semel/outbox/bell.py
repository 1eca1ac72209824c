"""How a relay that has nothing to do learns of a commit.

On PostgreSQL by NOTIFY, in the transaction that adds, but only while a relay is asleep: a transaction that notifies
takes a lock of the whole server when it commits, and holds it until its commit is on the disk, so that commits would go
one by one. A relay that is asleep holds an advisory lock, and a transaction that adds tries to share it until its end.
If that fails, a relay is asleep: notify. If not, no relay can fall asleep before this transaction is over, and one that
falls asleep then looks once more. So none is missed.

On SQLite by PRAGMA data_version, which is a look into shared memory. With any other driver by looking again and again.
Whatever goes wrong here delays messages by `FALLBACK_SECONDS`; it must never lose one.
"""

import selectors
import sqlite3
import threading
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, Engine, Text, case, cast, func, literal_column, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import PoolProxiedConnection

CHANNEL: Final = "semel_outbox"
# The advisory lock of a relay that is asleep: two numbers, of which the first is semel's ("seme").
_LOCK: Final = "1936026981, 1"
# After how long without news a relay looks by itself.
FALLBACK_SECONDS: Final = 1.0
# How often a relay looks that is awake and has nothing to do; and how often one does that cannot be woken.
_TICK_SECONDS: Final = 0.01
# How long a relay that is asleep takes to hear that it is to stop.
_SLEEP_SECONDS: Final = 0.1
# A look at data_version takes microseconds.
_VERSION_SECONDS: Final = 0.004
_DATA_VERSION: Final = "PRAGMA data_version"


# What an adding transaction evaluates on PostgreSQL.
WAKES_RELAY: Final[ColumnElement[Any]] = case(
    (literal_column(f"pg_try_advisory_xact_lock_shared({_LOCK})"), ""),
    else_=cast(func.pg_notify(literal_column(f"'{CHANNEL}'"), ""), Text),
)
_WAKE: Final = select(WAKES_RELAY)


def wake(connection: Connection) -> None:
    """Have the relay look once this transaction has committed."""
    if connection.dialect.name == "postgresql":
        connection.execute(_WAKE)


class Bell:
    """Rung when there may be something to do. A shard that hears it looks, and then waits for the next ring."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0
        # Goes up with each batch: the relay does not fall asleep while it does.
        self.done = 0

    @property
    def rings(self) -> int:
        return self._rings

    def ring(self) -> None:
        with self._condition:
            self._rings += 1
            self._condition.notify_all()

    def count_done(self) -> None:
        with self._condition:
            self.done += 1

    def wait_after(self, rings: int, seconds: float) -> None:
        """Until it rings once more than `rings` times."""
        with self._condition:
            self._condition.wait_for(lambda: self._rings > rings, seconds)


class Sleeper(Protocol):
    """Waits until there may be something new, for the fallback's time at most."""

    def wait(self) -> None: ...

    def close(self) -> None: ...


def sleeper_for(engine: Engine, bell: Bell, stopping: threading.Event, fallback_seconds: float) -> Sleeper:
    """The best that this engine's driver allows."""
    if engine.dialect.name == "sqlite":
        return _SqliteSleeper(engine, stopping, fallback_seconds)
    if engine.dialect.driver == "psycopg":
        return _PostgresSleeper(engine, bell, stopping, fallback_seconds)
    return _Ticking(stopping)


class _Ticking:
    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def wait(self) -> None:
        self._stopping.wait(_TICK_SECONDS)

    def close(self) -> None:
        pass


class _SqliteSleeper:
    def __init__(self, engine: Engine, stopping: threading.Event, fallback_seconds: float) -> None:
        self._stopping = stopping
        self._fallback_seconds = fallback_seconds
        # Not by SQLAlchemy, which would begin a transaction for it.
        self._raw: PoolProxiedConnection = engine.raw_connection()
        self._version = -1

    def wait(self) -> None:
        waited_seconds = 0.0
        while waited_seconds < self._fallback_seconds and not self._stopping.is_set():
            version = self._ask()
            if version != self._version:
                self._version = version
                return
            self._stopping.wait(_VERSION_SECONDS)
            waited_seconds += _VERSION_SECONDS

    def close(self) -> None:
        self._raw.close()

    def _ask(self) -> int:
        cursor = self._raw.cursor()
        try:
            cursor.execute(_DATA_VERSION)
            return int(cursor.fetchone()[0])  # type: ignore[index]
        except sqlite3.Error as error:
            raise OperationalError(_DATA_VERSION, None, error) from error
        finally:
            cursor.close()


class _PostgresSleeper:
    def __init__(self, engine: Engine, bell: Bell, stopping: threading.Event, fallback_seconds: float) -> None:
        self._bell = bell
        self._stopping = stopping
        self._fallback_seconds = fallback_seconds
        connection: Connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        raw: Any = connection.connection.driver_connection
        # Listens and locks for as long as it lives, so it must not go back into the pool.
        connection.detach()
        self._connection = connection
        self._news = selectors.DefaultSelector()
        self._news.register(raw.fileno(), selectors.EVENT_READ)
        connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        self._is_asleep = False
        self._done = -1

    def wait(self) -> None:
        if self._is_asleep:
            self._sleep()
            return
        self._stopping.wait(_TICK_SECONDS)
        if self._bell.done == self._done:
            self._is_asleep = bool(self._value(f"SELECT pg_try_advisory_lock({_LOCK})"))
        self._done = self._bell.done

    def close(self) -> None:
        self._news.close()
        self._connection.close()

    def _sleep(self) -> None:
        waited_seconds = 0.0
        while waited_seconds < self._fallback_seconds and not self._stopping.is_set():
            if self._news.select(_SLEEP_SECONDS):
                # The answer brings what was notified with it.
                self._value(f"SELECT pg_advisory_unlock({_LOCK})")
                self._is_asleep = False
                return
            waited_seconds += _SLEEP_SECONDS

    def _value(self, statement: str) -> Any:
        return self._connection.exec_driver_sql(statement).scalar()
