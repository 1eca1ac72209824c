"""The files of a Delta table in an object store: each task writes Parquet by `deltalake`'s own file system.

It takes the options of the commit, and needs no Hadoop. A file has a name that no other task and no other
attempt uses, so nothing is ever renamed; the values of a partition are in the commit alone, and may be any text. The
driver never sees a row.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from semel.spark.columns_by_number import map_in_arrow
from semel.spark.tables.delta_claims import Location
from semel.spark.tables.delta_files import statistics_of
from semel.spark.tables.task_files import gathered

if TYPE_CHECKING:
    import pyarrow
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

# The table in which the store is tried. Delta's readers, and what removes files, pass over names like this.
PROBE: Final = "_semel_probe"
# How many times two commits of one version at once are tried.
RACES: Final = 3
# The stores that this process has tried.
_TRIED: Final[set[tuple[object, ...]]] = set()


@dataclass(frozen=True)
class Writing:
    """What a task needs to write."""

    location: Location
    directory: str
    partition_by: tuple[str, ...]

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for rows in gathered(batches):
            for values, part in parted(rows, self.partition_by):
                yield pyarrow.record_batch({"added": [json.dumps(self.added(values, part))]})

    def added(self, values: dict[str, str | None], rows: pyarrow.Table) -> dict[str, Any]:
        """Writes one file, and says what a commit needs of it."""
        from pyarrow import parquet

        files, path = file_system(self.location), f"{self.directory}/{secrets.token_hex(16)}.parquet"
        collected: list[Any] = []
        # Without Arrow's own schema: it has the zone of Spark's session.
        parquet.write_table(rows, path, filesystem=files, store_schema=False, metadata_collector=collected)
        size = files.get_file_info(path).size
        return {"path": path, "size": size, "values": values, "stats": statistics_of(collected[0])}


def parted(rows: pyarrow.Table, names: tuple[str, ...]) -> Iterator[tuple[dict[str, str | None], pyarrow.Table]]:
    """The rows of each partition, without the columns that all of them share, and the values of these."""
    import pyarrow
    from pyarrow import compute

    if not names:
        yield {}, rows
        return
    rest = rows.drop_columns([*names])
    texts = pyarrow.table({str(number): text_of(rows[name]) for number, name in enumerate(names)})
    for values in texts.group_by(texts.column_names).aggregate([]).to_pylist():
        taken = None
        for number, value in values.items():
            column = texts[number]
            same = compute.is_null(column) if value is None else compute.equal(column, value)
            same = compute.fill_null(same, False)
            taken = same if taken is None else compute.and_(taken, same)
        yield dict(zip(names, values.values(), strict=True)), rest.filter(taken)


def text_of(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """The values as Delta writes them down. It has no empty text in a partition: that is null."""
    import pyarrow
    from pyarrow import compute

    texts = column.cast(pyarrow.string())
    return compute.if_else(compute.equal(texts, ""), pyarrow.scalar(None, pyarrow.string()), texts)


def written(location: Location, rows: DataFrame, directory: str, partition_by: tuple[str, ...]) -> list[AddAction]:
    from deltalake.transaction import AddAction

    # A task that ran twice hands over the files of one run: the others are in no commit.
    found = map_in_arrow(rows, Writing(location, directory, partition_by), "added string").collect()
    added = [json.loads(row.added) for row in found]
    now_ms = time.time_ns() // 1_000_000
    return [AddAction(one["path"], one["size"], one["values"], now_ms, True, one["stats"]) for one in added]


def file_system(location: Location) -> Any:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(location.uri, {**location.options}))


def remove_below(location: Location) -> None:
    from pyarrow.fs import FileSelector

    files = file_system(location)
    for one in files.get_file_info(FileSelector("", allow_not_found=True, recursive=True)):
        if one.is_file:
            files.delete_file(one.path)


def check_store(location: Location) -> None:
    """Refuses a store in which two commits of one version both succeed: one of them would vanish."""
    parts = urlsplit(location.uri)
    store = parts.scheme, parts.netloc, *sorted(location.options.items())
    if store in _TRIED:
        return
    if not commits_once(location):
        raise ValueError(
            f"{location} is in a store that ignores If-None-Match: of two commits at once one would vanish. Nothing "
            "was written. Choose a store with conditional writes"
        )
    _TRIED.add(store)


def commits_once(location: Location) -> bool:
    """Whether the second commit of a version is refused, one after the other and at once."""
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    probe = location / f"{PROBE}/{secrets.token_hex(8)}"
    schema = Schema([Field("id", PrimitiveType("long"))])
    DeltaTable.create(probe.uri, schema, storage_options={**probe.options})
    try:
        first, second = probe.table(), probe.table()
        if not _commits(first) or _commits(second):
            return False
        with ThreadPoolExecutor(2) as pool:
            races = [[*pool.map(_commits, (probe.table(), probe.table()))] for _ in range(RACES)]
        return all(race != [True, True] for race in races)
    finally:
        remove_below(probe)


def _commits(table: DeltaTable) -> bool:
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    try:
        once = CommitProperties(max_commit_retries=0)
        table.create_write_transaction([], "append", table.schema(), [], commit_properties=once)
    except CommitFailedError:
        return False
    return True
