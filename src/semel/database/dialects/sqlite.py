"""SQLite: WAL, every commit synced, a busy timeout, and transactions that begin IMMEDIATE.

It has one writer, so nothing else is needed against a claim that another transaction makes at the same time. It keeps
any kind of value in any column. This module must never leave a file changed that a tool only looks into.
"""

import json
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Insert,
    Integer,
    LargeBinary,
    Table,
    bindparam,
    case,
    cast,
    create_engine,
    event,
    func,
    literal_column,
    select,
    text,
    type_coerce,
)
from sqlalchemy.dialects import registry, sqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect as SQLDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import NullType, Text, TypeEngine

from semel.database.dialects.dialect import (
    LENDER,
    PROMPTLY,
    READS,
    Dialect,
    InsertEach,
    IsClaimed,
    Lent,
    News,
    OpenRawTransaction,
)
from semel.database.refusals import NotImmediate, NotInTransaction, UnknownDatabase
from semel.database.writers import PATH, check_no_own_writer

BUSY_TIMEOUT_MS: Final = 30_000
_PRAGMAS: Final = ("synchronous=FULL", f"busy_timeout={BUSY_TIMEOUT_MS}", "foreign_keys=ON")
_READER_PRAGMAS: Final = (f"busy_timeout={BUSY_TIMEOUT_MS}", "query_only=ON")
_SWITCH_AGAIN_SECONDS: Final = 0.01
# While another connection writes, SQLite sleeps between two tries: at first for 1, 2, 5 and 10 ms, in the end for
# 100 ms. A timeout after the first four, and a new try, keep each sleep that short.
_SHORT_SLEEPS_MS: Final = 18
_BEGIN_AS_WRITER: Final = "BEGIN IMMEDIATE"

_RAW_BEGIN: Final = "execute BEGIN IMMEDIATE first"
# The driver under SQLAlchemy begins a transaction when something is written first, which is too late.
_SQLALCHEMYS_BEGIN: Final = (
    "make the engine by semel.database.engine_of(url), or call semel.database.begin_immediately(engine) when it is "
    "made (for an AsyncEngine, with its sync_engine)"
)

_CHANGES: Final = select(func.changes())

# The higher bits of an error number only add detail.
_PRIMARY_CODE: Final = 0xFF
# BUSY, LOCKED, IOERR, FULL, PROTOCOL.
_PASSING_CODES: Final = frozenset({5, 6, 10, 13, 15})

# In place of a value of another kind than the column's. No column of texts or bytes has an integer otherwise.
_OF_ANOTHER_KIND: Final = literal_column("0", NullType())


class LentSqlite(Lent, SQLiteDialect_pysqlite):
    supports_statement_cache = True


registry.register(f"sqlite.{LENDER}", __name__, LentSqlite.__name__)


class Sqlite(Dialect):
    name = "sqlite"
    title = "SQLite"
    example = "sqlite:///file.db"
    driver = "pysqlite"
    has_one_writer = True
    news = News.VERSION

    def sqlalchemy(self) -> SQLDialect:
        return sqlite.dialect()

    def parsed(self, url: URL) -> URL:
        if url.host or url.username or url.password or url.port:
            raise UnknownDatabase(
                "a URL of SQLite has three slashes before its file, and no host: write sqlite:///FILE"
            )
        return url

    def prepare(self, engine: Engine) -> None:
        def prepare(cursor: Any) -> None:
            _switch_to_wal(cursor)
            _set(cursor, _PRAGMAS)

        _begin_for(engine, prepare)

    def reader(self, engine: Engine) -> Engine:
        reader = create_engine(engine.url)
        _begin_for(reader, lambda cursor: _set(cursor, _READER_PRAGMAS))
        return reader

    def missing_file(self, url: URL) -> str | None:
        """SQLite would make the file, even for a mistyped name."""
        file = url.database or ":memory:"
        return file if not file.startswith((":memory:", "file:")) and not Path(file).exists() else None

    def check(self, connection: Connection, driver: Any) -> None:
        path = connection.info.get(PATH)
        if path is None or not connection.in_transaction():
            # SQLAlchemy begins the caller's transaction with the first statement, so this sends one. On a connection
            # that was lent there is none to begin, and the driver itself is faster.
            ask = driver.execute if isinstance(connection.dialect, Lent) else connection.exec_driver_sql
            main = ask("PRAGMA database_list").fetchone()
            path = connection.info[PATH] = main[2] if main is not None else ""
        if not driver.in_transaction:
            is_lent = isinstance(connection.dialect, Lent)
            raise NotInTransaction(_RAW_BEGIN if is_lent else _SQLALCHEMYS_BEGIN)
        if not may_be_immediate(path):
            raise NotImmediate

    def is_in_transaction(self, driver: Any) -> bool:
        return bool(driver.in_transaction)

    def after_error(self, connection: Connection) -> None:
        """The driver knows."""

    def attributes_to_lend(self, raw: Any) -> dict[str, Any] | None:
        return {"row_factory": None, "text_factory": str} if isinstance(raw, sqlite3.Connection) else None

    def open_raw(self, raw: Any) -> OpenRawTransaction:
        return _OpenRaw(raw)

    def is_passing(self, raised: BaseException | None) -> bool | None:
        code = _code(raised)
        if code is not None:
            return code in _PASSING_CODES
        return False if isinstance(raised, sqlite3.Error) else None

    def is_conflict(self, raised: BaseException | None) -> bool:
        return isinstance(raised, sqlite3.OperationalError) and "database is locked" in str(raised)

    def is_missing_table(self, raised: BaseException | None) -> bool:
        return "no such table" in str(raised)

    def insert_new(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    def inserted_rows(self, connection: Connection, result: CursorResult[Any]) -> int:
        """Before Python 3.13 the driver takes no INSERT for one in a Turkish locale, and does not count its rows."""
        return result.rowcount if result.rowcount >= 0 else connection.execute(_CHANGES).scalar_one()

    def insert_each(self, table: Table, common: Sequence[str], each: Sequence[str]) -> InsertEach:
        rows = func.json_each(bindparam("batch", type_=Text)).table_valued("value", name="asked")
        shared = [bindparam(column, type_=table.c[column].type) for column in common]
        # Without a WHERE, SQLite's parser takes ON CONFLICT for the condition of a join.
        selection = select(
            *shared, *(func.json_extract(rows.c.value, f"$[{place}]") for place in range(len(each)))
        ).where(text("true"))
        insert = sqlite.insert(table).from_select([*common, *each], selection).on_conflict_do_nothing()
        statement = insert.returning(table.c[each[0]])
        return lambda connection, values, many: set(
            connection.scalars(statement, {**values, "batch": json.dumps(many)})
        )

    def is_among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        json_rows = func.json_each(json.dumps(numbers)).table_valued("value")
        return column.in_(select(json_rows.c.value))

    def lock_until_end(self, connection: Connection, *number: int) -> None:
        """The transaction itself is the lock."""

    def limit_statements(self, connection: Connection, statement_ms: int) -> None:
        """Nobody else's statements keep one of a reader waiting."""

    @cached_property
    def variants(self) -> dict[str, TypeEngine[Any]]:
        return {"number": Integer()}

    def as_bytes(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        kind = func.typeof(column)
        return case((kind.in_(("blob", "null")), type_coerce(column, NullType())), else_=_OF_ANOTHER_KIND)

    def as_text(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """The text's bytes, because the driver would refuse the whole answer for one text that is not UTF-8."""
        kind = func.typeof(column)
        return case((kind == "text", self.as_shown(column)), (kind == "null", None), else_=_OF_ANOTHER_KIND)

    def as_integer(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return case((func.typeof(column) == "integer", type_coerce(column, NullType())), else_=None)

    def as_shown(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """The bytes of a value of whatever kind."""
        return type_coerce(cast(column, LargeBinary), NullType())


def _code(raised: BaseException | None) -> int | None:
    """The primary code of the driver's own exception; None if it is not from SQLite."""
    code: int | None = getattr(raised, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE


# -- engines -----------------------------------------------------------------------------------------------------------


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
        if options.get(PROMPTLY):
            _begin_promptly(connection)
        elif options.get(READS):
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
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(pause_seconds)


# -- is a SQLite transaction IMMEDIATE? --------------------------------------------------------------------------------


# How many databases one thread has probes for; the probe that was unused for the longest time is closed first.
PROBES_MAX: Final = 8


class _Probes(threading.local):
    """One connection for each file and thread. A file that was deleted and created again is another file."""

    def __init__(self) -> None:
        self._probes: OrderedDict[tuple[str, int], sqlite3.Connection] = OrderedDict()

    def of(self, path: str) -> sqlite3.Connection:
        key = (path, os.stat(path).st_ino)
        probe = self._probes.get(key)
        if probe is None:
            probe = sqlite3.connect(path, timeout=0, isolation_level=None)
            self._probes[key] = probe
            if len(self._probes) > PROBES_MAX:
                self._probes.popitem(last=False)[1].close()
        self._probes.move_to_end(key)
        return probe


_probes = _Probes()


def may_be_immediate(path: str) -> bool:
    """False if no connection has the write lock of this file. True for a database in memory (an empty path), which has
    one connection."""
    if not path:
        return True
    probe = _probes.of(path)
    try:
        probe.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    probe.execute("ROLLBACK")
    return False


# -- a driver's own connection -----------------------------------------------------------------------------------------


_SAVEPOINT: Final = "semel_open"


class _OpenRaw(OpenRawTransaction):
    """A savepoint, which is gone as soon as the transaction ends in any way."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        super().__init__(raw)
        self._raw = raw
        self._is_released = False
        raw.execute(f"SAVEPOINT {_SAVEPOINT}")

    def release(self) -> None:
        if not self._is_released:
            self._release_savepoint()
        self._is_released = True

    def fail(self, is_claimed: IsClaimed) -> None:
        self._raw.set_authorizer(_refusal_of_commit())

    def _is_same(self) -> bool:
        if self._is_released or not self._release_savepoint():
            return False
        self._raw.execute(f"SAVEPOINT {_SAVEPOINT}")
        return True

    def _release_savepoint(self) -> bool:
        try:
            self._raw.execute(f"RELEASE {_SAVEPOINT}")
        except sqlite3.Error:
            return False
        return True


def _refusal_of_commit() -> Callable[..., int]:
    """An authorizer of SQLite that denies COMMIT until the claim was rolled back: with its transaction, or to a
    savepoint from before now."""
    is_refused = True
    later: set[str] = set()

    def authorize(action: int, operation: str | None, name: str | None, *_place: object) -> int:
        nonlocal is_refused
        if action == sqlite3.SQLITE_TRANSACTION:
            if operation == "COMMIT":
                return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK
            # ROLLBACK; or BEGIN, if the database has rolled back by itself.
            is_refused = False
        elif action == sqlite3.SQLITE_SAVEPOINT and operation == "BEGIN":
            later.add(str(name))
        elif action == sqlite3.SQLITE_SAVEPOINT and operation == "ROLLBACK" and name not in later:
            is_refused = False
        return sqlite3.SQLITE_OK

    return authorize
