"""The files of a Delta table in a directory that the driver and all executors see: Spark writes them, and names each
partition's directory.

The driver reads the sizes, never the rows.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql.types import StringType

from semel.spark.tables.file_rows import column_of

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyspark.sql import Column, DataFrame, SparkSession

# Spark's name for the directory of rows whose partition column is null or empty: Delta treats both as null.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Delta needs timestamps in Parquet's own type, not in the 96 bits of old Spark; and Spark must not convert them to an
# old calendar.
PARQUET_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
# The commit of the table says that the files are complete, so Spark need not write a `_SUCCESS` file.
NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
# The file systems that people use allow no longer name.
NAME_BYTES_MAX: Final = 255
# Spark writes each of these as three characters.
ESCAPED: Final = r"[\x01-\x1f\x22\x23\x25\x27\x2a\x2f\x3a\x3d\x3f\x5b\x5c\x5d\x5e\x7b\x7f]"
ESCAPE: Final = "%XX"
# A longer text is no bound: the commit has one for each file and column.
BOUND_CHARACTERS_MAX: Final = 32


def reasons(rows: DataFrame, partition_by: Sequence[str]) -> list[Column]:
    """Why a row can be in no directory, for each column that names one: a column, which is null if it can."""
    texts = {field.name for field in rows.schema.fields if isinstance(field.dataType, StringType)}
    return [_reason(name) for name in partition_by if name in texts]


def _reason(name: str) -> Column:
    from pyspark.sql import functions as f

    column = column_of(name)
    rest = len(f"{re.sub(ESCAPED, ESCAPE, name)}=".encode())
    length = f.octet_length(f.regexp_replace(column, ESCAPED, ESCAPE)) + rest
    return f.when(f.contains(column, f.lit("\0")), f"column {name!r} has the character NUL, and is a partition").when(
        length > NAME_BYTES_MAX, too_long(name)
    )


def too_long(name: str) -> str:
    return (
        f"column {name!r} is too long for a partition: the name of its directory would have more than "
        f"{NAME_BYTES_MAX} bytes"
    )


def written(rows: DataFrame, root: Path, directory: Path, partition_by: Sequence[str]) -> list[AddAction]:
    """Has the executors write the files, and returns the action that adds each of them. Spark puts a file into the
    directory only if it accepts the result of its task; a directory that a crash leaves is in no commit, and `vacuum`
    removes it."""
    try:
        with parquet_settings(rows.sparkSession):
            rows.write.options(**NO_MARK).partitionBy(*partition_by).parquet(str(directory))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    added = [add_action(path, root, directory) for path in files_of(directory, partition_by)]
    return [action for action in added if action is not None]


def files_of(directory: Path, partition_by: Sequence[str]) -> list[Path]:
    """The files that lie where the job's commit puts them, in one directory for each partition's value. A file
    elsewhere was left by an attempt that came too late; another attempt has written its rows."""
    paths = sorted(directory.rglob("[!._]*.parquet"))
    wanted = [*partition_by]
    return [
        path for path in paths if [partition_of(name)[0] for name in path.relative_to(directory).parts[:-1]] == wanted
    ]


def add_action(path: Path, root: Path, directory: Path) -> AddAction | None:
    from deltalake.transaction import AddAction
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    if not metadata.num_rows:
        path.unlink()
        return None
    status = path.stat()
    return AddAction(
        path=str(path.relative_to(root)),
        size=status.st_size,
        partition_values=dict(map(partition_of, path.relative_to(directory).parts[:-1])),
        modification_time=status.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=statistics_of(metadata),
    )


def statistics_of(metadata: Any) -> str:
    """How many rows a file has, and between which bounds its columns are, so that a reader may skip it. Floating-point
    numbers have no bounds, because Parquet's do not count NaN."""
    schema = metadata.schema.to_arrow_schema()
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        chunks = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        # What is inside of another column has a path with dots, and so may a column.
        if "." in name or name not in schema.names or not all(chunk and chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        known = [chunk for chunk in chunks if chunk.num_values]
        if known and all(chunk.has_min_max for chunk in known):
            with suppress(ValueError, OverflowError):
                bounds = min(chunk.min for chunk in known), max(chunk.max for chunk in known)
                lower, upper = bound(bounds[0], above=False), bound(bounds[1], above=True)
                if lower is not None and upper is not None:
                    least[name], greatest[name] = lower, upper
    found = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(found)


def bound(value: Any, *, above: bool) -> Any:
    """The value as Delta writes a bound down, or one beyond it; None if there is none."""
    if isinstance(value, datetime):
        # Delta counts milliseconds here.
        rest = timedelta(microseconds=value.microsecond % 1000)
        rounded = value - rest + timedelta(milliseconds=1) if above and rest else value - rest
        zone = "" if value.tzinfo is None else "Z"
        return f"{rounded.replace(tzinfo=None).isoformat(timespec='milliseconds')}{zone}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= BOUND_CHARACTERS_MAX else None
    return value if type(value) is int else None


def partition_of(directory: str) -> tuple[str, str | None]:
    """Parses `name=value`, as Spark names a directory."""
    name, _, value = directory.partition("=")
    return unquote(name), None if value == NULL_PARTITION else unquote(value)


@contextmanager
def parquet_settings(session: SparkSession) -> Iterator[None]:
    """Resets the settings afterwards: a micro-batch has its own session, but a caller of `write` may use one that
    others share."""
    before = {name: str(session.conf.get(name)) for name in PARQUET_SETTINGS}
    try:
        for name, value in PARQUET_SETTINGS.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
