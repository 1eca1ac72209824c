"""How a relay that has nothing to do learns of a commit.

On PostgreSQL, the transaction that adds a message uses NOTIFY, but only while a relay is asleep: a transaction that
notifies takes a server-wide lock when it commits, and holds it until its commit is on the disk, so commits would go one
by one. A sleeping relay holds an advisory lock, and a transaction that adds tries to share that lock until its end. If
it gets no share, a relay is asleep, and the transaction notifies it. If it gets one, no relay can fall asleep before
this transaction ends, and a relay that falls asleep then checks once more. So no message is missed.

On SQLite the relay reads PRAGMA data_version, which is in shared memory. With any other driver, and through a pooler
such as PgBouncer, it polls. A fault here
delays messages by `FALLBACK_SECONDS`; it must never lose one.
"""

import selectors
import sqlite3
import threading
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import PoolProxiedConnection

from semel.database.dialects import News, dialect_of, per_dialect
from semel.database.poolers import is_pooled

CHANNEL: Final = "semel_outbox"
# The advisory lock of a sleeping relay: two numbers, the first of which is semel's ("seme").
_LOCK: Final = "1936026981, 1"
# A relay that is not woken checks for messages after this time.
FALLBACK_SECONDS: Final = 1.0
# How often a relay checks while it is awake and idle, or if it cannot be woken.
_TICK_SECONDS: Final = 0.01
# How long a sleeping relay takes to notice that it is to stop.
_SLEEP_SECONDS: Final = 0.1
# How often a relay reads data_version, which takes microseconds.
_VERSION_SECONDS: Final = 0.004
_DATA_VERSION: Final = "PRAGMA data_version"


# A transaction that adds a message evaluates this, where a commit can wake a relay.
WAKES_RELAY: Final = per_dialect(lambda dialect: dialect.wakes(_LOCK, CHANNEL))


def wake(connection: Connection) -> None:
    """Wake the relay when this transaction has committed."""
    wakes = WAKES_RELAY[dialect_of(connection).name]
    if wakes is not None:
        connection.execute(select(wakes))


class Bell:
    """It rings when there may be messages. The shards then check, and wait for the next ring."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0
        # Rises with each batch: while it rises, the relay does not fall asleep.
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
        """Wait until it has rung more than `rings` times, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._rings > rings, seconds)


class Sleeper(Protocol):
    """Waits until there may be something new, for the fallback's time at most."""

    def wait(self) -> None: ...

    def close(self) -> None: ...


def sleeper_for(engine: Engine, bell: Bell, stopping: threading.Event, fallback_seconds: float) -> Sleeper:
    """The best way to wait that this engine's driver allows."""
    news = dialect_of(engine).news
    if news is News.VERSION:
        return _VersionSleeper(engine, stopping, fallback_seconds)
    if news is News.NOTIFIED and engine.dialect.driver == "psycopg" and not _is_pooled(engine):
        return _NotifiedSleeper(engine, bell, stopping, fallback_seconds)
    return _Ticking(stopping)


def _is_pooled(engine: Engine) -> bool:
    """Whether a pooler is between: then LISTEN and the lock of a sleeping relay would be those of another session."""
    with engine.connect() as connection:
        return is_pooled(connection)


class _Ticking:
    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def wait(self) -> None:
        self._stopping.wait(_TICK_SECONDS)

    def close(self) -> None:
        pass


class _VersionSleeper:
    def __init__(self, engine: Engine, stopping: threading.Event, fallback_seconds: float) -> None:
        self._stopping = stopping
        self._fallback_seconds = fallback_seconds
        # A raw connection, because SQLAlchemy would begin a transaction.
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


class _NotifiedSleeper:
    def __init__(self, engine: Engine, bell: Bell, stopping: threading.Event, fallback_seconds: float) -> None:
        self._bell = bell
        self._stopping = stopping
        self._fallback_seconds = fallback_seconds
        connection: Connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        raw: Any = connection.connection.driver_connection
        # This connection listens and holds locks as long as it is open, so it must not go back into the pool.
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
                # The answer to this statement also fetches the notifications.
                self._value(f"SELECT pg_advisory_unlock({_LOCK})")
                self._is_asleep = False
                return
            waited_seconds += _SLEEP_SECONDS

    def _value(self, statement: str) -> Any:
        return self._connection.exec_driver_sql(statement).scalar()
