"""The files of a Delta table in a directory that the driver and all executors see: Spark writes them, and names each
partition's directory.

The driver reads the sizes, never the rows.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
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

    count = parquet.read_metadata(path).num_rows
    if not count:
        path.unlink()
        return None
    status = path.stat()
    return AddAction(
        path=str(path.relative_to(root)),
        size=status.st_size,
        partition_values=dict(map(partition_of, path.relative_to(directory).parts[:-1])),
        modification_time=status.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": count}),
    )


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
