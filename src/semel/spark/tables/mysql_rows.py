"""What a task does for MySQL and MariaDB: it sends its rows into the staging table, many in one statement.

Arrow writes the text of the statements, so that Python makes no object of a value. A value that the server has no place
for, such as NaN or a year after 9999, is found before it is sent, and named. This module runs in the tasks; it must
never need what only the driver has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from semel.spark.tables.bad_rows import ROW_SHOWN_MAX, as_json, bad_row, values_of
from semel.spark.tables.servers import CONNECT_SECONDS_MAX, Server
from semel.spark.tables.statements import TASK_COLUMN, listed, literal, quoted, shown

if TYPE_CHECKING:
    import pyarrow

try:
    import pymysql
except ImportError as error:
    raise ImportError("a sink into MySQL or MariaDB needs PyMySQL: pip install 'semel[mysql]'") from error

# How many bytes a statement has: more makes nothing faster, and has to be in memory on both sides.
STATEMENT_BYTES_MAX: Final = 4 * 1024 * 1024
# What the server wants to have left of a packet.
_PACKET_BYTES_SPARE: Final = 1024
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_MICROSECONDS: Final = 86_400_000_000
# How long a text is at most that is sorted as a whole, in a key or as a version: an index takes no longer one. In an
# order each character has up to 4 bytes, and a buffer has to have room for 15 rows.
SORTED_BYTES_MAX: Final = 3072
_SORT: Final = (
    f"max_sort_length = {4 * SORTED_BYTES_MAX}, sort_buffer_size = GREATEST(@@sort_buffer_size, {4 * 1024 * 1024})"
)
# Texts as they are between quotes, names as in the statements for all databases, and no value that is nearly right.
_MODE: Final = (
    "STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)


@dataclass(frozen=True)
class Fit:
    """What a column of the table takes of a value."""

    characters_max: int | None = None
    bytes_max: int | None = None
    is_needed: bool = False
    is_binary: bool = False
    """Whether the value comes as hexadecimal digits that stand for bytes."""


@dataclass(frozen=True)
class Sending:
    """Where a task sends its rows: it is pickled, so it holds only what a task needs."""

    settings: Mapping[str, Any]
    server: Server
    staging: str
    bad: str | None
    """The table of the rows that cannot be staged; without it they end the query."""
    fits: Mapping[str, Fit]


def opened(settings: Mapping[str, Any], server: Server) -> Any:
    """A connection on which each statement commits by itself, unless a transaction is begun."""
    settings = {"connect_timeout": CONNECT_SECONDS_MAX, **settings, "autocommit": True, "charset": "utf8mb4"}
    try:
        connection: Any = pymysql.connect(**settings, defer_connect=True)
        # The driver's own limit ends when the network has connected: a server that stands still would have it wait.
        later, connection._read_timeout = connection._read_timeout, settings["connect_timeout"]
        connection.connect()
        connection._read_timeout = later
    except pymysql.err.OperationalError as error:
        raise server.unreachable(error) from None
    with connection.cursor() as cursor:
        cursor.execute(f"SET sql_mode = '{_MODE}', time_zone = '+00:00', {_SORT}")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


def send_task(into: Sending) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """The function with which a task sends its rows."""

    def send(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.taskAttemptId()
        count, bad_count = send_rows(into, task, batches)
        if count or bad_count:
            yield pyarrow.record_batch({"task": [task], "row_count": [count], "bad_count": [bad_count]})

    return send


def send_rows(into: Sending, task: int, batches: Iterable[pyarrow.RecordBatch]) -> tuple[int, int]:
    """Sends all batches in one transaction, one batch in memory at a time; connects only if there is a row. Returns how
    many rows are staged, and how many bad ones are kept."""
    connection, count, bad_count = None, 0, 0
    with into.server.failing(pymysql.err.Error), ExitStack() as closed:
        for batch in batches:
            if not batch.num_rows:
                continue
            if connection is None:
                connection = closed.enter_context(closing(opened(into.settings, into.server)))
                connection.begin()
                packet_bytes = bytes_of_packet(connection)
            good, bad = _parted(batch, into, packet_bytes, task)
            bad_count += len(bad)
            count += batch.num_rows - len(bad)
            with connection.cursor() as cursor:
                names = listed([*batch.schema.names, TASK_COLUMN])
                statement_begins = f"INSERT INTO {quoted(into.staging)} ({names}) VALUES ".encode()
                for statement in _statements(good, statement_begins, min(packet_bytes, STATEMENT_BYTES_MAX)):
                    cursor.execute(statement)
                for row, reason in bad.items():
                    shown_row = as_json(values_of(batch, row))
                    if into.bad is None:
                        raise bad_row(into.server.table, reason, shown_row)
                    kept = f"{literal(reason)}, {literal(shown_row)}, {task}"
                    keeping = f'INSERT INTO {quoted(into.bad)} (reason, "row", {TASK_COLUMN}) VALUES ({kept})'
                    check_length(into.server.table, reason, shown_row, keeping, packet_bytes)
                    cursor.execute(keeping)
        if connection is not None:
            connection.commit()
    return count, bad_count


def bytes_of_packet(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        [(packet_bytes,)] = cursor.fetchall()
    return int(packet_bytes) - _PACKET_BYTES_SPARE


def check_length(table: str, reason: str, row: str, statement: str, packet_bytes: int) -> None:
    """Raises if the server does not take the statement that writes a refused row into the quarantine."""
    if len(statement.encode()) > packet_bytes:
        raise ValueError(
            f"{table} refuses a row, {shown(row, ROW_SHOWN_MAX)}: {reason}. The quarantine cannot have it either: the "
            f"row is longer there than the server's max_allowed_packet of {packet_bytes} bytes. Nothing was written. "
            "Raise max_allowed_packet, change the row (columns=...), or leave such rows out (where=...)"
        )


def _parted(
    batch: pyarrow.RecordBatch, into: Sending, packet_bytes: int, task: int
) -> tuple[pyarrow.Array, dict[int, str]]:
    """The good rows, each as it stands in a statement, and the reason for each of the others by its place."""
    import pyarrow
    import pyarrow.compute as pc

    bad: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for is_bad, reason in _faults(column, into.fits.get(name, Fit())):
            for place in pc.indices_nonzero(is_bad).to_pylist():
                bad.setdefault(place, f"column {name}: {reason}")

    def left() -> pyarrow.Array:
        return pyarrow.array([place not in bad for place in range(batch.num_rows)])

    good = batch.filter(left()) if bad else batch
    lines = _lines(good, into.fits, task)
    too_long = pc.greater(pc.binary_length(lines), packet_bytes)
    if pc.any(too_long).as_py():
        places = [place for place in range(batch.num_rows) if place not in bad]
        for line in pc.indices_nonzero(too_long).to_pylist():
            bad[places[line]] = f"the row is longer than the server's max_allowed_packet of {packet_bytes} bytes"
        lines = lines.filter(pc.invert(too_long))
    return lines, bad


def _faults(column: pyarrow.Array, fit: Fit) -> Iterator[tuple[pyarrow.Array, str]]:
    """What MySQL would not keep of a column: which rows, and why."""
    import pyarrow
    import pyarrow.compute as pc

    kind = column.type
    if fit.is_needed and column.null_count:
        yield pc.is_null(column), "null, which the table refuses there"
    if pyarrow.types.is_floating(kind):
        yield pc.fill_null(pc.invert(pc.is_finite(column)), False), "NaN and Infinity are no numbers there"
    elif pyarrow.types.is_date(kind) or pyarrow.types.is_timestamp(kind):
        scale = 1 if pyarrow.types.is_date(kind) else _DAY_MICROSECONDS
        number = column.cast(pyarrow.int32() if pyarrow.types.is_date(kind) else pyarrow.int64()).cast(pyarrow.int64())
        is_out = pc.or_(pc.less(number, _FIRST_DAY * scale), pc.greater_equal(number, (_LAST_DAY + 1) * scale))
        yield pc.fill_null(is_out, False), "years are 1 to 9999 there"
    elif pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        yield _no_text(column), "not UTF-8"
        lengths = pc.binary_length(column)
        if fit.bytes_max is not None:
            length_max = fit.bytes_max * 2 + 2 if fit.is_binary else fit.bytes_max
            yield pc.fill_null(pc.greater(lengths, length_max), False), f"over {fit.bytes_max} bytes"
        # Nearly all are short, and only a text can be counted.
        if fit.characters_max is not None and pc.any(pc.greater(lengths, fit.characters_max)).as_py():
            text = pc.if_else(_no_text(column), "", column)
            is_long = pc.fill_null(pc.greater(pc.utf8_length(text), fit.characters_max), False)
            yield is_long, f"over {fit.characters_max} characters"


def _no_text(column: pyarrow.Array) -> pyarrow.Array:
    """Which texts are not UTF-8: Java lets them through."""
    import pyarrow

    try:
        column.validate(full=True)
    except pyarrow.ArrowInvalid:
        return pyarrow.array([not _is_utf8(value) for value in column.cast(pyarrow.binary()).to_pylist()])
    return pyarrow.repeat(pyarrow.scalar(False), len(column))


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _lines(batch: pyarrow.RecordBatch, fits: Mapping[str, Fit], task: int) -> pyarrow.Array:
    """Each row as `(1,'text',NULL,task),`."""
    names = zip(batch.schema.names, batch.columns, strict=True)
    fields = [_field(column, fits.get(name, Fit()).is_binary) for name, column in names]
    fields[0] = _joined("(", fields[0], "", nulls="replace")
    return _joined(*fields, f"{task}),", ",", nulls="replace")


def _joined(*parts: Any, nulls: str = "emit_null") -> pyarrow.Array:
    """The texts one after the other; the last one stands between them."""
    import pyarrow
    import pyarrow.compute as pc

    large = (pyarrow.scalar(part, pyarrow.large_string()) if isinstance(part, str) else part for part in parts)
    return pc.binary_join_element_wise(*large, null_handling=nulls, null_replacement="NULL")


def _field(column: pyarrow.Array, is_binary: bool) -> pyarrow.Array:
    """The values as they stand in a statement."""
    import pyarrow
    import pyarrow.compute as pc

    kind, text = column.type, pyarrow.large_string()
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind):
        return column.cast(text)
    if pyarrow.types.is_floating(kind):
        # As a number with an exponent: one without would be an exact one there, and its digits counted.
        return _joined("'", column.cast(pyarrow.float64()).cast(text), "'", "")
    if is_binary:
        return _joined("X'", pc.utf8_slice_codeunits(column.cast(text), 2), "'", "")
    if pyarrow.types.is_timestamp(kind):
        # The moment in UTC, whatever the session's zone.
        column = column.cast(pyarrow.int64()).cast(pyarrow.timestamp("us"))
    elif pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        column = pc.replace_substring(column.cast(text), "'", "''")
    return _joined("'", column.cast(text), "'", "")


def _statements(lines: pyarrow.Array, begins: bytes, bytes_max: int) -> Iterator[bytes]:
    """The lines in statements of so many bytes at most, as far as there is more than one line in each."""
    import numpy

    if not len(lines):
        return
    _, offset_buffer, data = lines.buffers()
    offsets = numpy.frombuffer(offset_buffer, numpy.int64)[lines.offset : lines.offset + len(lines) + 1]
    first = 0
    while first < len(lines):
        last = max(first + 1, int(numpy.searchsorted(offsets, offsets[first] + bytes_max, "right")) - 1)
        yield begins + memoryview(data)[offsets[first] : offsets[last] - 1]
        first = last
