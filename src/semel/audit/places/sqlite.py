"""A table of SQLite as rows, read by one connection that may not write.

Every value comes as text, so that 17 is the same id whether it was stored as a number or as text; SQLite allows both in
one column. A floating-point number comes as its shortest text. It is no id: its row counts as one without an id.
"""

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from semel.audit.errors import AuditFailed, meant
from semel.audit.places import BATCH_BYTES, Piece
from semel.audit.places.cursors import columns_of
from semel.audit.rows import ID_TYPE, Rows, Wanted

# How long to wait while another connection has the database locked.
BUSY_SECONDS_MAX = 10.0
# What SQLite says of a name in the address that it does not know.
_UNKNOWN = re.compile(r"no such (?P<what>table|column): (?P<name>.*)")


@dataclass(frozen=True)
class SQLiteTable:
    """The whole table is one piece: dividing it would make SQLite no faster."""

    name: str
    path: Path
    table: str
    wanted: Wanted
    batch_bytes: int = BATCH_BYTES

    @property
    def rows(self) -> int:
        return 0

    def pieces(self) -> Sequence[Piece]:
        if not os.path.isfile(self.path):
            raise AuditFailed(f"{self.path.absolute()}: there is no such file")
        return [self]

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        shown = ", ".join(map(_as_text, wanted.columns))
        try:
            with closing(self._connection()) as connection:
                cursor = connection.execute(f"SELECT {shown} FROM {self._from}")
                for columns in columns_of(cursor, wanted.columns, self.batch_bytes):
                    if not wanted.id.path:
                        columns[wanted.id.column] = tuple(map(_id_of, columns[wanted.id.column]))
                    arrays = {name: pa.array(map(_bytes_of, values), ID_TYPE) for name, values in columns.items()}
                    yield wanted.rows_of(arrays)
        except sqlite3.Error as error:
            raise AuditFailed(f"{self.name}: {error}{self._meant(str(error))}") from None

    def _meant(self, error: str) -> str:
        """Which table or column was probably meant, if there is none of the name that SQLite complains of."""
        unknown = _UNKNOWN.fullmatch(error)
        if unknown is None:
            return ""
        schema, _, table = self.table.rpartition(".")
        tables = f"SELECT name FROM {_quoted(schema or 'main')}.sqlite_master WHERE type IN ('table', 'view')"
        columns = f"SELECT name FROM pragma_table_xinfo('{table.replace(chr(39), 2 * chr(39))}')"
        with closing(self._connection()) as connection:
            connection.text_factory = str
            found = connection.execute(tables if unknown["what"] == "table" else columns).fetchall()
        return meant(unknown["name"], [name for (name,) in found])

    def _connection(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self.path))}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS_MAX, isolation_level=None)
        connection.text_factory = bytes
        return connection

    @property
    def _from(self) -> str:
        return ".".join(_quoted(part) for part in self.table.split("."))


def _as_text(column: str) -> str:
    """The column as text, but floating-point numbers as they are: SQLite's text of them is rounded to 15 digits. Blobs
    stay as they are, too: in a database in UTF-16, SQLite would take their bytes for that.
    """
    name = _quoted(column)
    return f"CASE WHEN typeof({name}) IN ('real', 'blob') THEN {name} ELSE CAST({name} AS TEXT) END"


def _id_of(value: bytes | float | None) -> bytes | None:
    """None for a floating-point number: it has more than one text."""
    return None if isinstance(value, float) else value


def _bytes_of(value: bytes | float | None) -> bytes | None:
    return repr(value).encode() if isinstance(value, float) else value


def _quoted(name: str) -> str:
    # In brackets and not in double quotes: SQLite takes a name in double quotes for a string if no column has it.
    if "]" in name or "\0" in name:
        raise AuditFailed(f"{name!r} is no name that can be looked up in SQLite")
    return f"[{name}]"
