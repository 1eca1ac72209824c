"""A table of PostgreSQL as rows, copied out by one statement of a read-only transaction.

Every value comes as text, in a session whose time zone and formats are set, and no value becomes a Python object.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from semel.audit.errors import AuditFailed, failed, meant
from semel.audit.places import BATCH_ROWS, Piece
from semel.audit.rows import Rows, Wanted

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError:
    raise AuditFailed("PostgreSQL needs the package psycopg: pip install 'semel[postgres]'") from None

CONNECT_SECONDS_MAX: Final = 10
# A row has to fit, and with it a JSON value that is searched.
BLOCK_BYTES: Final = 8 * 1024 * 1024

# Set for the one transaction. As options of the connection they would replace the user's options, such as a
# search_path, which decides which table is meant.
_SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "client_encoding": "UTF8",
    "extra_float_digits": "1",
    # If a policy would hide rows from this user, the statement fails, as in pg_dump: otherwise it would just get fewer.
    "row_security": "off",
}
# The tables of users, as an address names them.
_TABLES: Final = """
    SELECT CASE WHEN pg_table_is_visible(pg_class.oid) THEN relname ELSE nspname || '.' || relname END
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname <> 'information_schema' AND NOT starts_with(nspname, 'pg_')
"""
_COLUMNS: Final = """
    SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_BYTEA: Final = "bytea"
_NUMERIC: Final = "numeric"
_ID_TYPES: Final = ("smallint", "integer", "bigint", "text", "character varying", "character", "uuid", _BYTEA, _NUMERIC)


@dataclass(frozen=True)
class PostgresTable:
    """The whole table is one piece, and one statement reads one state of it."""

    name: str
    conninfo: str = field(repr=False)
    table: str
    wanted: Wanted
    types: dict[str, str] = field(default_factory=dict)
    batch_rows: int = BATCH_ROWS

    @property
    def rows(self) -> int:
        return 0

    def pieces(self) -> Sequence[Piece]:
        with self._connection() as connection:
            self._refuse_unknown_names(connection)
            types = _types(connection, self._relation, self.wanted.columns)
        kind = types[self.wanted.id.column]
        if not self.wanted.id.path and kind not in _ID_TYPES:
            raise AuditFailed(
                f"{self.name}: {self.wanted.id} is of type {kind}: an id is text, bytes, a whole number or a UUID"
            )
        return [replace(self, types=types)]

    def _refuse_unknown_names(self, connection: Any) -> None:
        quoted = self._relation.as_string(connection)
        if connection.execute("SELECT to_regclass(%s)", [quoted]).fetchone() == (None,):
            tables = [name for (name,) in connection.execute(_TABLES)]
            raise AuditFailed(f"{self.name}: there is no table {self.table!r}{meant(self.table, tables)}")
        columns = [name for (name,) in connection.execute(_COLUMNS, [quoted])]
        for column in self.wanted.columns:
            if column not in columns:
                raise AuditFailed(f"{self.name}: there is no column {column!r}{meant(column, columns)}")

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        columns = sql.SQL(", ").join(_as_text(column, self.types[column]) for column in wanted.columns)
        query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(columns, self._relation)
        with self._connection() as connection, connection.cursor().copy(query) as copy:
            # Arrow would take an empty stream for one row.
            stream = io.BufferedReader(_Stream(iter(copy)), BLOCK_BYTES)
            if not stream.peek(1):
                return
            for batch in _parsed(stream, wanted.columns):
                for begin in range(0, len(batch), self.batch_rows):
                    part = batch.slice(begin, self.batch_rows)
                    yield wanted.rows_of({name: self._column(part, name) for name in wanted.columns})

    def _column(self, batch: Any, name: str) -> Any:
        values = batch.column(name)
        if self.types[name] != _BYTEA:
            return values
        decoded = [None if value is None else bytes.fromhex(value) for value in values.to_pylist()]
        return pa.array(decoded, pa.binary())

    @property
    def _relation(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            parts = {"connect_timeout": CONNECT_SECONDS_MAX, **conninfo_to_dict(self.conninfo)}
            with psycopg.connect(make_conninfo("", **parts)) as connection:
                connection.read_only = True
                for name, value in _SETTINGS.items():
                    connection.execute("SELECT set_config(%s, %s, true)", [name, value])
                yield connection
        except (psycopg.Error, pa.ArrowInvalid) as error:
            raise failed(self.name, error) from None


def _types(connection: Any, relation: sql.Identifier, columns: Sequence[str]) -> dict[str, str]:
    """The type of each column, as PostgreSQL calls it; a missing column fails here."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    cursor = connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(names, relation))
    oids = [column.type_code for column in cursor.description]
    kinds = connection.execute("SELECT format_type(oid, NULL) FROM unnest(%s::oid[]) AS oid", [oids])
    return dict(zip(columns, (kind for (kind,) in kinds), strict=True))


def _as_text(column: str, kind: str) -> sql.Composed:
    if kind == _BYTEA:
        return sql.SQL("encode({}, 'hex')").format(sql.Identifier(column))
    if kind == _NUMERIC:
        # 17.00 is 17.
        return sql.SQL("trim_scale({})::text").format(sql.Identifier(column))
    return sql.SQL("{}::text").format(sql.Identifier(column))


def _parsed(stream: Any, columns: Sequence[str]) -> Any:
    """Batches of text; a value is null only if it is empty and not quoted."""
    return csv.open_csv(
        stream,
        read_options=csv.ReadOptions(column_names=columns, block_size=BLOCK_BYTES),
        # A row with one column, which is null, is an empty line.
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


class _Stream(io.RawIOBase):
    """The data of a COPY, as a file."""

    def __init__(self, chunks: Iterator[Any]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        filled = 0
        while filled < len(buffer):
            if not self._left:
                self._left = memoryview(next(self._chunks, b""))
                if not self._left:
                    break
            count = min(len(self._left), len(buffer) - filled)
            buffer[filled : filled + count] = self._left[:count]
            self._left = self._left[count:]
            filled += count
        return filled
