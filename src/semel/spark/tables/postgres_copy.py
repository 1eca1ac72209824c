"""What a task does for PostgreSQL: it copies its rows into the staging table, or keeps those that this one refuses.

A row that cannot be copied would end the query in every replay: it is told by its column and value, or kept beside the
others, as the user chooses. This module runs in the tasks; it must never need what only the driver has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from semel.spark.tables.bad_rows import as_json, bad_row, refused, values_of
from semel.spark.tables.postgres_columns import limit_of
from semel.spark.tables.servers import CONNECT_SECONDS_MAX, Server
from semel.spark.tables.statements import TASK_COLUMN, listed, one_line, quoted

if TYPE_CHECKING:
    import pyarrow
    from psycopg import Connection

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise ImportError("a sink into PostgreSQL needs psycopg: pip install 'semel[postgres]'") from error

# What PostgreSQL, or a trigger in it, says of a row that it refuses.
BAD_ROW = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException)
# Where the column and the value are named if COPY refuses a row.
COPIED = re.compile(r"^COPY .*, line \d+(?:, (?P<what>column .*))?$", re.MULTILINE)


def connection_of(url: str, server: Server, **options: Any) -> Connection:
    """A connection, made in bounded time unless the URL or PGCONNECT_TIMEOUT says otherwise."""
    try:
        seconds = os.environ.get("PGCONNECT_TIMEOUT", CONNECT_SECONDS_MAX)
        settings: Any = {"connect_timeout": seconds, **conninfo_to_dict(url), "client_encoding": "UTF8"}
        return psycopg.connect(**settings, **options)
    except psycopg.OperationalError as error:
        raise server.unreachable(error) from None


def reason_of(error: psycopg.Error, names: Sequence[str] = ()) -> str:
    """What PostgreSQL says of a row. COPY names the table where rows are staged, and a line of it: only the column and
    the value matter. `names` are the columns of the staging table, if it has refused the row."""
    said = error.diag
    limited = limit_of(said.constraint_name or "") if names else None
    if limited is not None:
        number, limit = limited
        return f"column {names[number - 1]}: {limit}"
    copied = COPIED.search(said.context or "")
    what = (copied and copied["what"], said.column_name and f"column {said.column_name}", said.message_detail)
    more = [text for text in what if text]
    return one_line(f"{said.message_primary}{f' ({more[0]})' if more else ''}")


def row_of(error: psycopg.Error, task: int) -> str:
    """The row that a constraint of the staging table has refused, as far as PostgreSQL shows it."""
    shown = re.search(r"\(.*\)", error.diag.message_detail or "", re.DOTALL) if error.diag.constraint_name else None
    return "" if shown is None else shown[0].removesuffix(f", {task})") + ")"


@dataclass(frozen=True)
class Copying:
    """Where a task copies its rows: it is pickled, so it holds only what a task needs."""

    url: str
    server: Server
    staging: str
    bad: str | None
    """The table of the rows that `staging` refuses; without it they end the query."""
    counted: set[str]


def copy_task(into: Copying) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """The function with which a task copies its rows."""

    def copy(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.taskAttemptId()
        count, bad_count = copy_rows(into, task, iter(batches))
        if count or bad_count:
            yield pyarrow.record_batch({"task": [task], "row_count": [count], "bad_count": [bad_count]})

    return copy


def copy_rows(into: Copying, task: int, batches: Iterator[pyarrow.RecordBatch]) -> tuple[int, int]:
    """Copies all batches in one transaction, one batch in memory at a time; connects only if there is a row. Returns
    how many rows are staged, and how many bad ones are kept."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0, 0
    names = listed([*first.schema.names, TASK_COLUMN])
    copying = f"COPY {quoted(into.staging)} ({names}) FROM STDIN (FORMAT csv)".encode()
    count, bad_count = 0, 0
    with into.server.failing(psycopg.Error), connection_of(into.url, into.server) as connection:
        if into.bad is None:
            try:
                with connection.cursor().copy(copying) as copy:
                    for batch in chain([first], batches):
                        copy.write(as_csv(batch, task, into.counted))
                        count += batch.num_rows
            except BAD_ROW as error:
                reason = reason_of(error, first.schema.names)
                raise bad_row(into.server.table, reason, one_line(row_of(error, task))) from None
            return count, 0
        for batch in chain([first], batches):
            bad = copy_but_bad(connection, copying, batch, task, into)
            bad_count += bad
            count += batch.num_rows - bad
    return count, bad_count


def copy_but_bad(connection: Connection, copying: bytes, batch: pyarrow.RecordBatch, task: int, into: Copying) -> int:
    """Copies the rows that the staging table takes, and keeps the others in a table of their own; returns how many."""

    def tried(first: int, end: int) -> str | None:
        try:
            with connection.transaction(), connection.cursor().copy(copying) as copy:
                copy.write(as_csv(batch.slice(first, end - first), task, into.counted))
        except BAD_ROW as error:
            return reason_of(error, batch.schema.names)
        return None

    bad = list(refused(0, batch.num_rows, tried))
    for place, reason in bad:
        keep = f"INSERT INTO {quoted(str(into.bad))} (reason, row, {TASK_COLUMN}) VALUES (%s, %s, %s)".encode()
        connection.execute(keep, [reason, as_json(values_of(batch, place)), task])
    return len(bad)


def as_csv(batch: pyarrow.RecordBatch, task: int, counted: set[str]) -> memoryview:
    """The format that COPY reads: null is an empty field, the empty string is a pair of quotes, and Arrow writes both
    like this."""
    import pyarrow
    from pyarrow import csv

    def column_of(name: str) -> pyarrow.Array:
        column = batch.column(name)
        if name in counted:
            return column.cast(pyarrow.int64())
        # If the column has no zone, PostgreSQL would drop the offset of a timestamp in the session's zone; so it is
        # written in UTC.
        return column.cast(pyarrow.timestamp("us", "UTC")) if pyarrow.types.is_timestamp(column.type) else column

    columns = [column_of(name) for name in batch.schema.names]
    tasks = pyarrow.repeat(pyarrow.scalar(task, pyarrow.int64()), batch.num_rows)
    written = pyarrow.BufferOutputStream()
    csv.write_csv(
        pyarrow.record_batch([*columns, tasks], names=[*batch.schema.names, TASK_COLUMN]),
        written,
        csv.WriteOptions(include_header=False),
    )
    return memoryview(written.getvalue())
