"""SQLAlchemy engines for a URL, with the settings that a claim's transaction needs. They must change nothing else.

On SQLite: WAL, every commit synced, a busy timeout, and transactions that begin IMMEDIATE. For PostgreSQL: psycopg, if
the URL names no driver.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.errors import UnknownDatabase, sqlite_code
from semel.database.kinds import WrongKind, check_engine, check_kind
from semel.database.poolers import prepare_nothing_through_pooler
from semel.database.writers import check_no_own_writer

BUSY_TIMEOUT_MS: Final = 30_000
_PRAGMAS: Final = ("synchronous=FULL", f"busy_timeout={BUSY_TIMEOUT_MS}", "foreign_keys=ON")
_READER_PRAGMAS: Final = (f"busy_timeout={BUSY_TIMEOUT_MS}", "query_only=ON")
_SWITCH_AGAIN_SECONDS: Final = 0.01
# The execution option of an engine whose transactions only read.
_READS: Final = "semel_reads"
# The execution option of an engine whose transactions begin soon after another writer's.
_PROMPTLY: Final = "semel_promptly"
# While another connection writes, SQLite sleeps between two tries: at first for 1, 2, 5 and 10 ms, in the end for
# 100 ms. A timeout after the first four, and a new try, keep each sleep that short.
_SHORT_SLEEPS_MS: Final = 18
_BEGIN_AS_WRITER: Final = "BEGIN IMMEDIATE"

EngineT = TypeVar("EngineT", Engine, AsyncEngine)


def engine_of(url: str | URL, **options: Any) -> Engine:
    """An engine on which `engine.begin()` gives a transaction that outbox, inbox and HTTP keys accept."""
    parsed = _parse(url)
    try:
        engine = create_engine(parsed, **options)
    except ModuleNotFoundError as missing:
        package = "'semel[postgres]'" if missing.name == "psycopg" else missing.name
        raise ImportError(f"{missing.name}, the driver for this database, is missing: pip install {package}") from None
    if parsed.get_backend_name() == "sqlite":
        begin_immediately(engine)
    elif engine.dialect.driver == "psycopg":
        event.listen(engine, "connect", lambda connection, _record: prepare_nothing_through_pooler(connection))
    return engine


def blocking_engine_of(url: str | URL, **options: Any) -> Engine:
    """`engine_of` for a tool that blocks. It also takes the URL of an application on asyncio, and then replaces its
    driver by a blocking one."""
    parsed = _parse(url)
    if parsed.get_dialect().is_async:
        parsed = _parse(parsed.set(drivername=parsed.get_backend_name()))
    return engine_of(parsed, **options)


def reader_of(engine: Engine) -> Engine:
    """An engine for the same database that can change nothing, for a tool that only looks: on SQLite not even how the
    file keeps its journal."""
    if engine.dialect.name != "sqlite":
        return read_only(engine)
    reader = create_engine(engine.url)
    _begin_for(reader, lambda cursor: _set(cursor, _READER_PRAGMAS))
    return read_only(reader)


def missing_file(engine: Engine) -> str | None:
    """The file of a SQLite database, if it is missing. SQLite would make the file, even for a mistyped name."""
    file = engine.url.database or ":memory:"
    is_file = engine.dialect.name == "sqlite" and not file.startswith((":memory:", "file:"))
    return file if is_file and not Path(file).exists() else None


def begin_immediately(engine: Engine) -> None:
    """Make every transaction of a SQLite engine IMMEDIATE. For an AsyncEngine, pass its `sync_engine`."""
    if isinstance(engine, AsyncEngine):
        raise WrongKind("begin_immediately takes the engine.sync_engine of an AsyncEngine")
    check_engine("the engine", engine)

    def prepare(cursor: Any) -> None:
        _switch_to_wal(cursor)
        _set(cursor, _PRAGMAS)

    _begin_for(engine, prepare)


def _begin_for(engine: Engine, prepare: Callable[[Any], None]) -> None:
    """Begin the transactions of a SQLite engine in place of its driver, on connections that `prepare` has set up."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        # The driver must not begin transactions by itself: it would begin them late, and as a reader.
        connection.isolation_level = None
        cursor = connection.cursor()
        prepare(cursor)
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        options = connection.get_execution_options()
        if options.get(_PROMPTLY):
            _begin_promptly(connection)
        elif options.get(_READS):
            connection.exec_driver_sql("BEGIN")
        else:
            check_no_own_writer(connection)
            connection.exec_driver_sql(_BEGIN_AS_WRITER)


def _begin_promptly(connection: Connection) -> None:
    """On the driver's cursor, because SQLAlchemy would roll back after each try."""
    # By SQLAlchemy, which finds out here whether the connection is dead. An application may have set another timeout.
    timeout_ms = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    cursor: Any = connection.connection.cursor()
    _set(cursor, (f"busy_timeout={_SHORT_SLEEPS_MS}",))
    try:
        _insist(cursor, _BEGIN_AS_WRITER, pause_seconds=0)
    except sqlite3.Error as error:
        raise DBAPIError.instance(_BEGIN_AS_WRITER, None, error, sqlite3.Error) from error
    finally:
        _set(cursor, (f"busy_timeout={timeout_ms}",))
        cursor.close()


def _set(cursor: Any, pragmas: Iterable[str]) -> None:
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")


def read_only(engine: EngineT) -> EngineT:
    """The same engine for transactions that only read: on SQLite they wait for no writer, and no writer waits for them.

    So a request that holds a transaction can also read outside it. Outbox, inbox and HTTP keys refuse such a
    transaction.
    """
    check_engine("the engine", engine, (Engine, AsyncEngine))
    options: Any = engine.execution_options(**{_READS: True, "postgresql_readonly": True})
    return cast(EngineT, options)


def prompt(engine: Engine) -> Engine:
    """The same engine for a tool that works beside an application: on SQLite its transactions begin some milliseconds
    after a long one of the application, and not up to a hundred."""
    return engine.execution_options(**{_PROMPTLY: True})


def _switch_to_wal(cursor: Any) -> None:
    """If many connections switch a new file to WAL together, SQLite refuses some at once, whatever the busy timeout
    is."""
    _insist(cursor, "PRAGMA journal_mode=WAL", pause_seconds=_SWITCH_AGAIN_SECONDS)


def _insist(cursor: Any, statement: str, *, pause_seconds: float) -> None:
    """Execute a statement again while others keep the file busy, for as long as any statement may wait."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if sqlite_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(pause_seconds)


def _parse(url: str | URL) -> URL:
    check_kind("the URL of a database", url, (str, URL))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # In a URL that cannot be parsed, nobody knows where a password is.
        shown = "this" if "@" in str(url) or "?" in str(url) else repr(url)
        raise UnknownDatabase(f"{shown} is no database URL; say sqlite:///file.db or postgresql://host/name") from None
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise UnknownDatabase(
            f"{backend} is no database that semel knows; there are sqlite:///... and postgresql://..."
        )
    if backend == "sqlite" and (parsed.host or parsed.username or parsed.password or parsed.port):
        raise UnknownDatabase("a URL of SQLite has three slashes before its file, and no host: write sqlite:///FILE")
    if parsed.drivername == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    return parsed
