"""PostgreSQL: by psycopg, if the URL names no driver; asyncpg and others of SQLAlchemy's drivers work, too.

A second insert of a key waits for the transaction of the first. Locks of a transaction have numbers, and a statement
returns what it has written. A transaction in which a statement has failed is undone at its COMMIT, without an error.
"""

import contextlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Insert,
    Table,
    Text,
    any_,
    bindparam,
    case,
    event,
    func,
    literal,
    literal_column,
    select,
    text,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects import postgresql, registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import Dialect as SQLDialect
from sqlalchemy.exc import DBAPIError

from semel.database.dialects.dialect import (
    LENDER,
    Dialect,
    InsertEach,
    IsClaimed,
    Lent,
    News,
    OpenRawTransaction,
    is_of_a_kind,
)
from semel.database.poolers import check_prepares_nothing_through_pooler, prepare_nothing_through_pooler
from semel.database.refusals import NotInTransaction

_BEGIN: Final = "take a connection that is not on autocommit, or begin a transaction on it first"

# libpq's numbers for a connection without a transaction, and for a transaction that has failed.
_IDLE: Final = 0
_IN_ERROR: Final = 3

# Classes of SQLSTATE that pass: lost connections, conflicts with other transactions, too few resources, a server that
# shuts down.
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "57"})
# Only the codes of locks from class 55; its other codes are about statements that never work. 25006: a write to a
# server that has just become a standby.
_PASSING_STATES: Final = frozenset({"55P03", "55006", "25006"})
_NO_CONNECTION: Final = frozenset({"psycopg.OperationalError", "psycopg2.OperationalError"})
# What PostgreSQL says of a database or a user that is not there, which no waiting makes. psycopg passes its words on
# without the code; of a server that speaks another language nobody can tell it from one that is away.
_IS_NOT_THERE: Final = "does not exist"
_UNDEFINED_TABLE: Final = "42P01"
_CLASS: Final = re.compile(r"<class '[\w.]+'>: ")
_CANNOT_SERIALIZE: Final = "40001"


class LentPostgresql(Lent, PGDialect_psycopg):
    supports_statement_cache = True


registry.register(f"postgresql.{LENDER}", __name__, LentPostgresql.__name__)


class Postgresql(Dialect):
    name = "postgresql"
    title = "PostgreSQL"
    example = "postgresql://host/name"
    driver = "psycopg"
    packages: ClassVar = {"psycopg": "'semel[postgres]'"}
    isolation = "READ COMMITTED"
    has_locks = True
    news = News.NOTIFIED
    no_connection = _NO_CONNECTION

    def sqlalchemy(self) -> SQLDialect:
        return postgresql.dialect()  # type: ignore[no-untyped-call]

    def prepare(self, engine: Engine) -> None:
        if engine.dialect.driver == "psycopg":
            event.listen(engine, "connect", lambda connection, _record: prepare_nothing_through_pooler(connection))

    def check(self, connection: Connection, driver: Any) -> None:
        """Without autocommit, the driver begins a transaction with the first statement; with it, the caller may have
        sent BEGIN."""
        if self.ends_in_sql(connection):
            asyncpg_like = hasattr(driver, "is_in_transaction")
            if not (driver.is_in_transaction() if asyncpg_like else driver.info.transaction_status):
                raise NotInTransaction(_BEGIN)
        check_prepares_nothing_through_pooler(connection)

    def ends_in_sql(self, connection: Connection) -> bool:
        adapted: Any = connection.connection.dbapi_connection
        return bool(adapted.autocommit)

    def is_in_transaction(self, driver: Any) -> bool:
        if hasattr(driver, "info"):
            return bool(driver.info.transaction_status != _IDLE)
        # asyncpg; what any other driver knows is left to the database.
        return bool(driver.is_in_transaction()) if hasattr(driver, "is_in_transaction") else True

    def has_failed(self, connection: Connection, error: BaseException | None) -> bool:
        driver: Any = connection.connection.driver_connection
        if hasattr(driver, "info"):
            return bool(driver.info.transaction_status == _IN_ERROR)
        return error is not None and not _answers(connection)

    def mark(self, connection: Connection) -> int:
        """The number of this transaction."""
        cursor: Any = connection.connection.cursor()
        try:
            return _transaction_id(cursor)
        finally:
            cursor.close()

    def is_marked(self, connection: Connection, mark: int) -> bool:
        return self.mark(connection) == mark

    def after_error(self, connection: Connection) -> None:
        """The driver knows."""

    def attributes_to_lend(self, raw: Any) -> dict[str, Any] | None:
        if not is_of_a_kind(raw, ("psycopg.Connection",)):
            return None
        import psycopg

        return {"row_factory": psycopg.rows.tuple_row, "cursor_factory": psycopg.Cursor}

    def open_raw(self, raw: Any) -> OpenRawTransaction:
        return _OpenRaw(raw)

    def is_passing(self, raised: BaseException | None) -> bool | None:
        state = _sqlstate(raised)
        if state is None:
            return False if is_of_a_kind(raised, _NO_CONNECTION) and _IS_NOT_THERE in str(raised) else None
        return state[:2] in _PASSING_CLASSES or state in _PASSING_STATES

    def is_conflict(self, raised: BaseException | None) -> bool:
        return _sqlstate(raised) == _CANNOT_SERIALIZE

    def is_missing_table(self, raised: BaseException | None) -> bool:
        """The message depends on the language of the server, so its code decides."""
        return _sqlstate(raised) == _UNDEFINED_TABLE

    def text_of(self, raised: BaseException | None) -> str | None:
        """SQLAlchemy puts the class of asyncpg's error before it."""
        return None if _sqlstate(raised) is None else _CLASS.sub("", str(raised))

    def insert_new(self, table: Table) -> Insert:
        return postgresql.insert(table).on_conflict_do_nothing()

    def insert_each(self, table: Table, common: Sequence[str], each: Sequence[str]) -> InsertEach:
        arrays = [bindparam(f"all_{column}", type_=ARRAY(table.c[column].type)) for column in each]
        rows = func.unnest(*arrays).table_valued(*each).render_derived("asked")
        shared = [sql_cast(bindparam(column, type_=table.c[column].type), table.c[column].type) for column in common]
        selection = select(*shared, *(rows.c[column] for column in each))
        insert = postgresql.insert(table).from_select([*common, *each], selection).on_conflict_do_nothing()
        statement = insert.returning(table.c[each[0]])

        def inserted(connection: Connection, values: Any, many: Sequence[Sequence[Any]]) -> set[Any]:
            columns = {f"all_{name}": list(column) for name, column in zip(each, zip(*many, strict=True), strict=True)}
            return set(connection.scalars(statement, {**values, **columns}))

        return inserted

    def is_among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        return column == any_(literal(numbers, ARRAY(BigInteger)))

    @cached_property
    def now_ms(self) -> ColumnElement[int]:
        return literal_column("CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)", BigInteger)

    def lock_until_end(self, connection: Connection, *number: int) -> None:
        connection.execute(select(func.pg_advisory_xact_lock(*number)))

    def try_lock(self, number: ColumnElement[int]) -> ColumnElement[bool]:
        return func.pg_try_advisory_xact_lock(number)

    def wait_for_lock(self, number: ColumnElement[int]) -> ColumnElement[bool]:
        return select(func.pg_advisory_xact_lock(number)).scalar_subquery().is_not(None)

    def wakes(self, lock: str, channel: str) -> ColumnElement[Any]:
        return case(
            (literal_column(f"pg_try_advisory_xact_lock_shared({lock})"), ""),
            else_=sql_cast(func.pg_notify(literal_column(f"'{channel}'"), ""), Text),
        )

    @cached_property
    def durably(self) -> ColumnElement[Any]:
        """A synchronous commit also makes all earlier ones durable."""
        off = func.current_setting("synchronous_commit") == "off"
        return case((off, func.set_config("synchronous_commit", "local", True)))

    @cached_property
    def in_order(self) -> Executable:
        """A table that fills and empties faster than its statistics are updated: with old ones, PostgreSQL would read
        and sort all rows for each query, or spend more time on compiling a statement than on running it."""
        return select(func.set_config("enable_sort", "off", True), func.set_config("jit", "off", True))

    def waits(self, connect_seconds: int, silence_ms: int) -> dict[str, Any]:
        return {"connect_timeout": connect_seconds, "tcp_user_timeout": silence_ms}

    def limit_statements(self, connection: Connection, statement_ms: int) -> None:
        # Not as an option of the connection, because a pool between the tool and the server may refuse it.
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {statement_ms}")

    def check_database(self, connection: Connection) -> str | None:
        """In another encoding, an event whose id has other characters could neither be claimed nor put aside, and would
        end the loop of its consumer each time."""
        encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding == "UTF8":
            return None
        return (
            f"the encoding of this database is {encoding}, in which not every id can be stored: create a database "
            "WITH ENCODING 'UTF8'"
        )


def _sqlstate(raised: BaseException | None) -> str | None:
    """The SQLSTATE of the driver's own exception; None if it has none."""
    code = getattr(raised, "sqlstate", None) or getattr(raised, "pgcode", None)
    return code if isinstance(code, str) else None


def _answers(connection: Connection) -> bool:
    """Whether a query still works. If the transaction has failed, none does, even if the driver does not know that."""
    try:
        connection.exec_driver_sql("SELECT 1")
    except DBAPIError:
        return False
    return True


def _transaction_id(cursor: Any) -> int:
    cursor.execute("SELECT txid_current()")
    return int(cursor.fetchone()[0])


# -- a driver's own connection -----------------------------------------------------------------------------------------


# The one thing that makes a COMMIT of PostgreSQL's fail: a constraint that is checked only then, and is not met. It is
# gone with the transaction, or with the savepoint around the claim.
_REFUSING_TABLE: Final = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS semel_refuses_commit (number integer CONSTRAINT "
    '"roll back: an exception left the block of a claim" UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP'
)
_REFUSING_ROWS: Final = "INSERT INTO pg_temp.semel_refuses_commit VALUES (1), (1)"


class _OpenRaw(OpenRawTransaction):
    """The number of the transaction, which has to be the same at the end."""

    def __init__(self, raw: Any) -> None:
        super().__init__(raw)
        self._raw = raw
        self._id = self._number()

    def release(self) -> None:
        """Nothing holds it."""

    def fail(self, is_claimed: IsClaimed) -> None:
        if self._is_usable():
            import psycopg

            # If this user may make no tables, the transaction has failed by that, and its COMMIT undoes it.
            with contextlib.suppress(psycopg.Error), self._cursor() as cursor:
                for statement in (_REFUSING_TABLE, _REFUSING_ROWS):
                    cursor.execute(statement)

    def _is_same(self) -> bool:
        return self._is_usable() and self._number() == self._id

    def _is_usable(self) -> bool:
        status = self._raw.info.transaction_status
        return bool(status == type(status).INTRANS)

    def _number(self) -> int:
        with self._cursor() as cursor:
            return _transaction_id(cursor)

    def _cursor(self) -> Any:
        """One whose rows are tuples, whatever the caller's own are."""
        import psycopg

        return psycopg.Cursor(self._raw, row_factory=psycopg.rows.tuple_row)
