"""MySQL 8 and MariaDB from 10.6 on, with InnoDB: by PyMySQL, or by aiomysql on asyncio.

A second insert of a key waits for the transaction of the first. Keys are bytes, because every collation takes some
texts for equal that are not. A deadlock undoes the whole transaction, statements such as CREATE TABLE commit it, and
the next statement begins another one. So the driver has to know whether a transaction is open, and what is not known to
keep it open is refused before it is sent. Other engines than InnoDB roll nothing back, so this module must never make a
table in one.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final
from weakref import WeakSet

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    Select,
    Table,
    event,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect as SQLDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import Pool
from sqlalchemy.types import TypeEngine

from semel.database.dialects.dialect import READS, Dialect, InsertEach, LockHeld, OpenRawTransaction
from semel.database.refusals import NotInTransaction, UnknownConnection, UnsafeSettings

_DIRTY: Final = "at READ UNCOMMITTED a transaction sees claims that may be undone: take READ COMMITTED"
_BEGIN: Final = "take a connection that is not on autocommit"
_DRIVERS: Final = "PyMySQL (mysql+pymysql://), and aiomysql (mysql+aiomysql://) on asyncio"
# The key under which a pooled connection keeps that its settings were looked at.
_LOOKED_AT: Final = "semel.settings"
_HAS_LOCKS: Final = "semel.locks"

# The flags of the server's answers.
_IN_TRANSACTION: Final = 1
_AUTOCOMMIT: Final = 2

# What may stand between two words. The server runs what is in /*! and /*M!, so those are no comments.
_SPACE: Final = r"(?:\s+|/\*(?!M?!)(?s:.*?)\*/|#[^\n]*(?:\n|$)|--[^\n]*(?:\n|$))"
# The statements that end no transaction. SET is one of them without the words that do, wherever these stand.
_KEEPS: Final = re.compile(
    rf"(?>{_SPACE}*)(?:\(|(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|VALUES|TABLE|CALL|EXECUTE|PREPARE|DEALLOCATE|DO"
    rf"|SHOW|EXPLAIN|DESCRIBE|DESC|USE|SAVEPOINT|RELEASE|ROLLBACK{_SPACE}+(?:WORK{_SPACE}+)?TO|LOAD{_SPACE}+(?:DATA|XML)"
    rf"|CREATE{_SPACE}+(?:OR{_SPACE}+REPLACE{_SPACE}+)?TEMPORARY{_SPACE}+TABLE|DROP{_SPACE}+TEMPORARY{_SPACE}+TABLES?"
    r"|SET(?!(?s:.*)(?:\b(?:AUTOCOMMIT|PASSWORD|ROLE|STATEMENT)\b|/\*M?!)))\b)",
    re.IGNORECASE,
)
# Statements in which another one may be that ends the transaction.
_MAY_COMMIT: Final = re.compile(rf"(?>{_SPACE}*)(?:CALL|EXECUTE)\b|(?s:.*);(?>{_SPACE}*)[^;\s]", re.IGNORECASE)
_SAVEPOINT: Final = "semel_statement"

_DRIVERS_ERRORS: Final = ("pymysql", "MySQLdb", "asyncmy", "aiomysql")
# Conflicts with other transactions: a lock wait, a deadlock, a row that has changed since the snapshot, NOWAIT.
_CONFLICTS: Final = frozenset({1205, 1213, 1020, 3572})
# Lost connections, too few resources, a server that shuts down, or has just become a replica.
_PASSING: Final = _CONFLICTS | {
    *(1021, 1030, 1037, 1038, 1040, 1041, 1053, 1079, 1080, 1114, 1129, 1135, 1158, 1159, 1160, 1161, 1180, 1203),
    *(1226, 1290, 1317, 1614, 1836, 1927, 1969, 3024, 3058, 3169, 4031),
    *(2002, 2003, 2006, 2012, 2013, 2055),
}
_UNDEFINED_TABLE: Final = 1146
# How long to wait for others that make tables, or read the layout of an outbox.
_LOCK_SECONDS: Final = 600
_pools: Final[WeakSet[Pool]] = WeakSet()


class VARBINARY(mysql.VARBINARY):
    """Texts as their bytes in UTF-8. A longer one is refused here: an INSERT IGNORE would cut it off, and take it for
    another key."""

    # Alembic takes the name from here, and writes what exists without semel.
    __module__ = mysql.__name__

    def bind_processor(self, dialect: Any) -> Any:
        def bytes_of(value: str | None) -> bytes | None:
            if value is None:
                return None
            data = value.encode()
            if self.length is not None and len(data) > self.length:
                raise ValueError(f"a key has {self.length} bytes at most, and {value[:60]!r}... has {len(data)}")
            return data

        return bytes_of

    def literal_processor(self, dialect: Any) -> Any:
        return mysql.VARCHAR().literal_processor(dialect)  # type: ignore[no-untyped-call]

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        return lambda value: value.decode() if isinstance(value, bytes | bytearray) else value


class BIGINT(mysql.BIGINT):
    """A number that has more bits is refused here: an INSERT IGNORE would store the nearest one."""

    __module__ = mysql.__name__

    def bind_processor(self, dialect: Any) -> Any:
        def checked(value: int | None) -> int | None:
            if value is not None and not -(2**63) <= value < 2**63:
                raise ValueError(f"{value} is no number of 64 bits")
            return value

        return checked


class Mysql(Dialect):
    name = "mysql"
    title = "MySQL or MariaDB"
    example = "mysql://host/name"
    driver = "pymysql"
    packages: ClassVar = {"pymysql": "'semel[mysql]'"}
    isolation = "READ COMMITTED"
    table_options: ClassVar = {"engine": "InnoDB"}

    @property
    def backends(self) -> tuple[str, ...]:
        return ("mysql", "mariadb")

    def sqlalchemy(self) -> SQLDialect:
        """With the reserved words of both: `offset` is one in MariaDB alone."""
        return mysql.dialect(is_mariadb=True)

    def parsed(self, url: URL) -> URL:
        url = super().parsed(url)
        return url if "charset" in url.query else url.update_query_dict({"charset": "utf8mb4"})

    def prepare(self, engine: Engine) -> None:
        @event.listens_for(engine, "begin")
        def begun(connection: Connection) -> None:
            if connection.get_execution_options().get(READS):
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")

    # -- connections and transactions --------------------------------------------------------------------------------

    def check(self, connection: Connection, driver: Any) -> None:
        if not hasattr(driver, "server_status"):
            raise UnknownConnection(driver, f"it does not say whether a transaction is open: take {_DRIVERS}")
        if self.ends_in_sql(connection) and not self.is_in_transaction(driver):
            raise NotInTransaction(_BEGIN)
        options = connection.get_execution_options()
        if options.get(READS):
            raise NotInTransaction("take the engine itself, and not read_only(engine)")
        if options.get("isolation_level") == "READ UNCOMMITTED":
            raise UnsafeSettings(_DIRTY)
        if _LOOKED_AT not in connection.info:
            _check_settings(connection)
            connection.info[_LOOKED_AT] = True

    def ends_in_sql(self, connection: Connection) -> bool:
        driver: Any = connection.connection.driver_connection
        return bool(driver.server_status & _AUTOCOMMIT)

    def is_in_transaction(self, driver: Any) -> bool:
        return bool(driver.server_status & _IN_TRANSACTION)

    def after_error(self, connection: Connection) -> None:
        """The answer with an error does not say it, and the next one does."""
        with contextlib.suppress(connection.dialect.dbapi.Error):  # type: ignore[union-attr]
            _send(connection, "DO 0")

    def commits_by_itself(self, statement: str) -> bool:
        return _KEEPS.match(statement) is None

    def may_commit(self, statement: str) -> bool:
        return _MAY_COMMIT.match(statement) is not None

    def mark(self, connection: Connection) -> bool:
        _send(connection, f"SAVEPOINT {_SAVEPOINT}")
        return True

    def is_marked(self, connection: Connection, mark: bool) -> bool:
        try:
            _send(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except connection.dialect.dbapi.Error:  # type: ignore[union-attr]
            return False
        return True

    def attributes_to_lend(self, raw: Any) -> dict[str, Any] | None:
        """It has no events, and nothing that makes its COMMIT fail, so none is borrowed."""
        return None

    def open_raw(self, raw: Any) -> OpenRawTransaction:
        raise UnknownConnection(raw)

    # -- errors ------------------------------------------------------------------------------------------------------

    def is_passing(self, raised: BaseException | None) -> bool | None:
        code = _code(raised)
        return None if code is None else code in _PASSING

    def is_conflict(self, raised: BaseException | None) -> bool:
        return _code(raised) in _CONFLICTS

    def is_missing_table(self, raised: BaseException | None) -> bool:
        return _code(raised) == _UNDEFINED_TABLE

    def text_of(self, raised: BaseException | None) -> str | None:
        return None if _code(raised) is None else str(raised.args[-1])  # type: ignore[union-attr]

    # -- statements --------------------------------------------------------------------------------------------------

    def insert_new(self, table: Table) -> Insert:
        """With ON DUPLICATE KEY UPDATE the row count would not say which it was: drivers have the rows counted that
        were found, not those that were changed."""
        return mysql.insert(table).prefix_with("IGNORE")

    def insert_each(self, table: Table, common: Sequence[str], each: Sequence[str]) -> InsertEach:
        """All at once; if not all are new, nothing says which are, and they are inserted one by one."""
        insert = self.insert_new(table).inline().execution_options(preserve_rowcount=True)

        def inserted(connection: Connection, values: Any, many: Sequence[Sequence[Any]]) -> set[Any]:
            rows = [{**values, **dict(zip(each, row, strict=True))} for row in many]
            savepoint = connection.begin_nested()
            if connection.execute(insert, rows).rowcount == len(rows):
                savepoint.commit()
                return {row[0] for row in many}
            savepoint.rollback()
            return {row[each[0]] for row in rows if connection.execute(insert, row).rowcount}

        return inserted

    def is_among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        return column.in_(numbers)

    @cached_property
    def now_ms(self) -> ColumnElement[int]:
        return literal_column("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000", BigInteger)

    def lock_until_end(self, connection: Connection, *number: int) -> None:
        """A lock of the session, which a commit does not release: until the connection goes back into its pool."""
        pool = connection.engine.pool
        if pool not in _pools:
            event.listen(pool, "checkin", _release)
            _pools.add(pool)
        connection.info[_HAS_LOCKS] = True
        name = func.md5(func.concat_ws(" ", "semel", func.database(), *number))
        if connection.scalar(select(func.get_lock(name, _LOCK_SECONDS))) != 1:
            raise LockHeld(f"another program has kept semel's tables locked for {_LOCK_SECONDS} s")

    @contextlib.contextmanager
    def promptly(self, connection: Connection) -> Iterator[None]:
        """MySQL waits for a second at least."""
        seconds = 0 if _is_mariadb(connection) else 1
        wait = "innodb_lock_wait_timeout"
        connection.exec_driver_sql(f"SET @semel_wait = @@{wait}, {wait} = {seconds}")
        try:
            yield
        except DBAPIError as error:
            if self.is_conflict(error.orig):
                raise LockHeld from error
            raise
        finally:
            with contextlib.suppress(connection.dialect.dbapi.Error):  # type: ignore[union-attr]
                _send(connection, f"SET {wait} = @semel_wait")

    def current(self, selection: Select[Any]) -> Select[Any]:
        """A query without a lock reads the snapshot of the transaction's first one."""
        return selection.with_for_update(read=True)

    def waits(self, connect_seconds: int, silence_ms: int) -> dict[str, Any]:
        return {"connect_timeout": connect_seconds, "read_timeout": silence_ms / 1000}

    def limit_statements(self, connection: Connection, statement_ms: int) -> None:
        limit = f"max_statement_time = {statement_ms / 1000}"
        connection.exec_driver_sql(
            f"SET {limit if _is_mariadb(connection) else f'max_execution_time = {statement_ms}'}"
        )

    # -- columns -----------------------------------------------------------------------------------------------------

    def key(self, bytes_max: int) -> TypeEngine[Any]:
        return VARBINARY(bytes_max)

    @cached_property
    def variants(self) -> dict[str, TypeEngine[Any]]:
        """The usual ones of texts and bytes end after 64 KiB."""
        text = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
        return {"text": text, "bytes": mysql.LONGBLOB(), "integer": BIGINT()}

    def check_database(self, connection: Connection) -> str | None:
        found = connection.execute(_OTHER_ENGINES).first()
        if found is None:
            return None
        return (
            f"the table {found[0]} of this database is in the engine {found[1]}, which rolls nothing back: "
            f"ALTER TABLE {found[0]} ENGINE = InnoDB"
        )


_OTHER_ENGINES: Final = text(
    r"SELECT table_name, engine FROM information_schema.tables "
    r"WHERE table_schema = DATABASE() AND table_name LIKE 'semel\_%' AND engine <> 'InnoDB'"
)


def _check_settings(connection: Connection) -> None:
    """Those of this session that decide what others see of a transaction, and what arrives of a text."""
    isolation = "tx_isolation" if _is_mariadb(connection) else "transaction_isolation"
    level, charset = connection.exec_driver_sql(f"SELECT @@{isolation}, @@character_set_client").one()
    if level == "READ-UNCOMMITTED":
        raise UnsafeSettings(_DIRTY)
    if charset != "utf8mb4":
        raise UnsafeSettings(f"texts are sent in {charset}, which cannot say them all: add ?charset=utf8mb4 to the URL")


def _is_mariadb(connection: Connection) -> bool:
    dialect: Any = connection.dialect
    return bool(dialect.is_mariadb)


def _code(raised: BaseException | None) -> int | None:
    """The number of the driver's own exception; None if it is not from MySQL."""
    if type(raised).__module__.partition(".")[0] not in _DRIVERS_ERRORS or not raised.args:  # type: ignore[union-attr]
        return None
    code = raised.args[0]  # type: ignore[union-attr]
    return code if isinstance(code, int) else None


def _send(connection: Connection, statement: str) -> None:
    """On the driver's cursor, so that nothing else happens."""
    cursor: Any = connection.connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()


def _release(driver: Any, record: Any) -> None:
    if driver is not None and record.info.pop(_HAS_LOCKS, False):
        cursor = driver.cursor()
        cursor.execute("DO RELEASE_ALL_LOCKS()")
        cursor.close()
