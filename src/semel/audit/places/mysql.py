"""A table of MySQL or MariaDB as rows, read by one statement of a read-only transaction, some rows at a time.

Every value comes as text, in a session whose time zone is UTC, and is bytes until it is compared.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from semel.audit.errors import AuditFailed, failed, meant
from semel.audit.places import BATCH_BYTES, Piece
from semel.audit.places.cursors import columns_of
from semel.audit.rows import ID_TYPE, Rows, Wanted

try:
    import pymysql
    from pymysql.cursors import SSCursor

    from semel.database.engines import driver_settings
    from semel.database.refusals import UnknownDatabase
except ImportError:
    raise AuditFailed("MySQL needs the package PyMySQL: pip install 'semel[mysql]'") from None

CONNECT_SECONDS_MAX: Final = 10
# For so long the server waits while the rows that it has sent are compared.
_WRITE_SECONDS_MAX: Final = 600
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_DECIMAL: Final = "decimal"
_ID_TYPES: Final = (*_TEXTS, *_BYTES, _DECIMAL, "tinyint", "smallint", "mediumint", "int", "bigint")
# In the database that comes first, or in that of the connection.
_WHERE: Final = "table_schema = COALESCE(NULLIF(%s, ''), DATABASE())"
_TABLES: Final = f"SELECT table_name FROM information_schema.tables WHERE {_WHERE}"
_COLUMNS: Final = (
    "SELECT column_name, data_type, LOCATE('zerofill', column_type) FROM information_schema.columns "
    f"WHERE {_WHERE} AND table_name = %s ORDER BY ordinal_position"
)


class _Kind(NamedTuple):
    """A type, and whether its numbers are shown with zeros before them."""

    name: str
    is_filled: bool = False


_GONE: Final = _Kind("")


@dataclass(frozen=True)
class MysqlTable:
    """The whole table is one piece, and one statement reads one state of it."""

    name: str
    url: str = field(repr=False)
    table: str
    wanted: Wanted
    batch_bytes: int = BATCH_BYTES

    @property
    def rows(self) -> int:
        return 0

    def pieces(self) -> Sequence[Piece]:
        with self._cursor() as cursor:
            kinds = _kinds(cursor, self.table)
            if not kinds:
                tables = _tables(cursor, self.table)
                raise AuditFailed(f"{self.name}: there is no table {self.table!r}{meant(self.table, tables)}")
        for column in self.wanted.columns:
            if column not in kinds:
                raise AuditFailed(f"{self.name}: there is no column {column!r}{meant(column, kinds)}")
        kind = kinds[self.wanted.id.column]
        if not self.wanted.id.path and kind.name not in _ID_TYPES:
            raise AuditFailed(
                f"{self.name}: {self.wanted.id} is of type {kind.name}: an id is text, bytes or a whole number"
            )
        return [self]

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        with self._cursor() as cursor:
            kinds = _kinds(cursor, self.table)
            shown = ", ".join(_as_bytes(column, kinds.get(column, _GONE)) for column in wanted.columns)
            cursor.execute(f"SELECT {shown} FROM {_quoted(self.table)}")
            for values in columns_of(cursor, wanted.columns, self.batch_bytes):
                yield wanted.rows_of({name: pa.array(column, ID_TYPE) for name, column in values.items()})

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        try:
            settings = {"connect_timeout": CONNECT_SECONDS_MAX, **driver_settings(self.url)}
            with pymysql.connect(**{**settings, "charset": "utf8mb4"}) as connection, SSCursor(connection) as cursor:
                cursor.execute(f"SET time_zone = '+00:00', net_write_timeout = {_WRITE_SECONDS_MAX}")
                cursor.execute("START TRANSACTION READ ONLY")
                yield cursor
        except (UnknownDatabase, pymysql.err.Error, TypeError) as error:
            # The driver says of an option that it does not know that it is no argument.
            raise failed(self.name, error.args[-1] if error.args else error) from None


def _kinds(cursor: Any, table: str) -> dict[str, _Kind]:
    """The type of each column of the table; none if there is no such table."""
    schema, _, name = table.rpartition(".")
    cursor.execute(_COLUMNS, [schema, name])
    return {column: _Kind(str(kind).lower(), bool(is_filled)) for column, kind, is_filled in cursor.fetchall()}


def _tables(cursor: Any, table: str) -> list[str]:
    """The tables of the database in which the table should be, as an address names them."""
    schema, point, _ = table.rpartition(".")
    cursor.execute(_TABLES, [schema])
    return [schema + point + str(name) for (name,) in cursor.fetchall()]


def _as_bytes(column: str, kind: _Kind) -> str:
    """The column as bytes, which are those of its text in UTF-8."""
    name = _quoted(column, is_column=True)
    if kind.name in _BYTES:
        return name
    text = f"CONVERT({name} USING utf8mb4)"
    if kind.is_filled:
        # 00017 is 17, and 00000 is 0. Such a number has no sign.
        text = f"TRIM(LEADING '0' FROM {text})"
        text = f"IF({text} = '' OR {text} LIKE '.%', CONCAT('0', {text}), {text})"
    if kind.name == _DECIMAL:
        # 17.00 is 17.
        text = f"IF({text} LIKE '%.%', TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text})), {text})"
    return f"CAST({text} AS BINARY)"


def _quoted(name: str, is_column: bool = False) -> str:
    parts = [name] if is_column else name.split(".")
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
