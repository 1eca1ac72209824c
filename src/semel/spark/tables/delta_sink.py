"""Rows into a Delta table, each batch once: tasks write the files, and one commit adds them together with the claim.

The files lie inside the table, and no commit contains them yet. The claim is a few of Delta's application transactions,
which the library stores but does not enforce: so a commit here succeeds only as the very next version after the one
whose claim was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyspark.sql import is_remote
from pyspark.sql.types import StringType, StructType

from semel.spark.tables import delta_files, delta_objects
from semel.spark.tables.bad_rows import checked_choice, quarantine_of
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.delta_claims import Location, app_ids, numbered, standing, version_app_id
from semel.spark.tables.delta_schema import check_table, opened
from semel.spark.tables.file_rows import first_reason, not_utf8
from semel.spark.tables.files import FileSink, FileTable
from semel.spark.tables.sink import Choice

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import Column, DataFrame


class DeltaFiles(FileTable["DeltaTable", "AddAction"]):
    def __init__(
        self, location: Location, partition_by: tuple[str, ...], sink_id: str, *, add_columns: bool, keeps_bad: bool
    ) -> None:
        self.where = str(location)
        self.location = location
        self.partition_by = partition_by
        self.sink_id = sink_id
        self.add_columns = add_columns
        if keeps_bad:
            beside = Location(quarantine_of(location.uri), location.options)
            self.quarantine = DeltaFiles(beside, (), sink_id, add_columns=False, keeps_bad=False)

    def opened(self, schema: StructType) -> DeltaTable:
        if self.location.is_store:
            delta_objects.check_store(self.location)
        return opened(self.location, schema, self.partition_by, add_columns=self.add_columns)

    def kept(self, claim: TableClaim) -> TableClaim:
        return numbered(claim)

    def held(self, version: DeltaTable) -> TableClaim | None:
        return standing(version, self.sink_id, self.location)

    def attempt(self, version: DeltaTable) -> int | None:
        return version.transaction_version(app_ids(self.sink_id)[-1])

    def reasons(self, version: DeltaTable, rows: DataFrame) -> Column | None:
        if self.location.is_store:
            return first_reason(not_utf8(field.name for field in rows.schema if isinstance(field.dataType, StringType)))
        return first_reason(delta_files.reasons(rows, self.partition_by))

    def written(self, version: DeltaTable, rows: DataFrame, attempt: int) -> list[AddAction]:
        if self.location.is_store:
            return delta_objects.written(self.location, rows, directory_of(attempt), self.partition_by)
        root = Path(self.location.uri)
        return delta_files.written(rows, root, root / directory_of(attempt), self.partition_by)

    def committed(self, version: DeltaTable, files: Sequence[AddAction], claim: TableClaim, attempt: int) -> bool:
        from deltalake.exceptions import CommitFailedError

        noted, partition_by = self.claimed(version, numbered(claim), attempt), version.metadata().partition_columns
        try:
            version.create_write_transaction(
                [*files], "append", version.schema(), partition_by, commit_properties=noted
            )
        except CommitFailedError:
            return False
        return True

    def claimed(self, version: DeltaTable, claim: TableClaim, attempt: int) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        versions = (claim.batch_id, int(claim.query_id), int(claim.digest), attempt)
        noted = dict(zip(app_ids(self.sink_id), versions, strict=True))
        # The commit succeeds as this version, or not at all.
        noted[version_app_id(self.sink_id)] = version.version() + 1
        return CommitProperties(
            app_transactions=[Transaction(app_id, number) for app_id, number in noted.items()],
            # In a retry the library would check for conflicts by its own rules, and not for our claim.
            max_commit_retries=0,
        )


def directory_of(attempt: int) -> str:
    return f"semel-{attempt:016x}"


class DeltaSink(FileSink):
    afresh = (
        "delete the rows from there on (DeltaTable.delete), and give the sink a new sink_id: the table keeps the old "
        "claim"
    )


def delta_sink(
    path: str | Path,
    *,
    partition_by: Sequence[str] | str = (),
    columns: Sequence[str] = (),
    where: str | None = None,
    on_bad_row: str = "fail",
    add_columns: bool = False,
    storage_options: Mapping[str, str] | None = None,
    sink_id: str | None = None,
    accept_after: str | None = None,
) -> DeltaSink:
    """A sink that appends to the Delta table at `path`, made if it is missing, with the package `deltalake`.

    `path` is a directory that the driver and all executors see, or the URL of an object store (`s3://bucket/table`),
    for which `storage_options` and the environment say what `deltalake` needs to get there. `where` chooses which rows
    are written, and `columns` what of them, as expressions of Spark's SQL; without them, all rows and all columns. A
    row that the table cannot have ends the query, or is written into the table `<path>_quarantine` with
    `on_bad_row="quarantine"`. A new column is refused, or added to the table with `add_columns=True`. The batch is
    claimed in the table itself, under `sink_id`, or "semel". `accept_after` lets one batch follow that was refused:
    the refusal says which value. A store in which one of two commits at once would vanish is refused.
    """
    try:
        import deltalake
    except ImportError as error:
        raise ImportError("a sink into Delta needs deltalake: pip install 'semel[delta]'") from error
    partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    location = location_of(str(path), storage_options or {})
    # With Spark Connect another machine writes the rows, and may alone reach the table.
    if not is_remote() and deltalake.DeltaTable.is_deltatable(location.uri, storage_options={**location.options}):
        check_table(location.table(), location, partitions)
    keeps_bad = checked_choice(on_bad_row) == "quarantine"
    files = DeltaFiles(location, partitions, sink_id or "semel", add_columns=add_columns, keeps_bad=keeps_bad)
    return DeltaSink(f"delta:{location}:{files.sink_id}", files, Choice(tuple(columns), where), accept_after)


def location_of(path: str, options: Mapping[str, str]) -> Location:
    if urlsplit(path).scheme not in ("", "file"):
        return Location(path.rstrip("/"), options)
    directory = Path(path.removeprefix("file://")).absolute()
    check_path(directory)
    return Location(str(directory))


def check_path(directory: Path) -> None:
    """Refuses a path with a literal `%20` or the like. The library follows links, and decodes what it finds."""
    real = str(directory.resolve())
    if unquote(real) != real:
        raise ValueError(f"deltalake would read {real} as another path, {unquote(real)}: choose a path without %XX")
