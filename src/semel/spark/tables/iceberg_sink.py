"""Rows into an Iceberg table, each batch once: tasks write the files, and one commit adds them together with the claim.

It needs no Iceberg for the JVM: the executors write with `pyiceberg`, and the driver commits to the catalog. The commit
succeeds only on the snapshot whose claim was read. The library would repeat a lost commit by itself, without a look at
the claim: it must never do so here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import is_remote

from semel.spark.tables import iceberg_files
from semel.spark.tables.bad_rows import checked_choice, quarantine_of
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.file_rows import first_reason
from semel.spark.tables.files import FileSink, FileTable
from semel.spark.tables.iceberg_claims import MAIN, Noted, key_of, standing, text_of
from semel.spark.tables.iceberg_schema import check_table, opened, schema_of
from semel.spark.tables.sink import Choice

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class IcebergFiles(FileTable["Table", "DataFile"]):
    def __init__(
        self,
        catalog: str,
        settings: Mapping[str, str],
        name: str,
        sink_id: str,
        *,
        branch: str = MAIN,
        partition_by: tuple[str, ...] = (),
        add_columns: bool = False,
        keeps_bad: bool = False,
    ) -> None:
        self.where = name
        self.settings = catalog, tuple(sorted(settings.items()))
        self.sink_id = sink_id
        self.branch = branch
        self.partition_by = partition_by
        self.add_columns = add_columns
        if keeps_bad:
            self.quarantine = IcebergFiles(catalog, settings, quarantine_of(name), sink_id)

    @property
    def catalog(self) -> Catalog:
        return catalog_of(*self.settings)

    def opened(self, schema: StructType) -> Table:
        columns = schema_of(schema)
        return opened(self.catalog, self.where, self.branch, columns, self.partition_by, add_columns=self.add_columns)

    def noted(self, version: Table) -> Noted | None:
        return standing(version.metadata, self.sink_id, self.branch, self.where)

    def held(self, version: Table) -> TableClaim | None:
        noted = self.noted(version)
        return None if noted is None else noted.claim

    def attempt(self, version: Table) -> int | None:
        noted = self.noted(version)
        return None if noted is None else noted.attempt

    def reasons(self, version: Table, rows: DataFrame) -> Column | None:
        return first_reason(iceberg_files.reasons(version, rows))

    def written(self, version: Table, rows: DataFrame, attempt: int) -> list[DataFile]:
        return iceberg_files.written(version, rows, schema_of(rows.schema))

    def form(self, version: Table) -> object:
        return version.metadata.table_uuid, *numbers_of(version)

    def committed(self, version: Table, files: Sequence[DataFile], claim: TableClaim, attempt: int) -> bool:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
        from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

        key = key_of(self.sink_id, self.branch)
        transaction, (schema, spec) = version.transaction(), numbers_of(version)
        # The library by itself asks for the same columns and partitions only in a commit that changes them.
        columns = AssertCurrentSchemaId.model_validate({"current-schema-id": schema})
        partitions = AssertDefaultSpecId.model_validate({"default-spec-id": spec})
        transaction._stage((), (columns, partitions))
        summary = {key: text_of(Noted(claim, attempt))}
        # Without files it makes a snapshot, too: the claim needs one.
        with transaction.update_snapshot(snapshot_properties=summary, branch=self.branch).fast_append() as snapshot:
            for file in files:
                snapshot.append_data_file(file)
        sequence = version.metadata.next_sequence_number()
        transaction.set_properties({key: text_of(Noted(claim, attempt, snapshot.snapshot_id, sequence))})
        # For these the library repeats a lost commit, and deletes what a commit that it takes for lost has written.
        transaction._snapshot_producers.clear()
        try:
            transaction.commit_transaction()
        except (CommitFailedException, CommitStateUnknownException):
            return False
        except Exception:
            # A commit to another branch makes the catalog refuse this one by other words.
            if self.catalog.load_table(self.where).metadata_location == version.metadata_location:
                raise
            return False
        return True


def numbers_of(version: Table) -> tuple[int, int]:
    """The numbers of its columns and of its partitions: each change gives another one."""
    return version.metadata.current_schema_id, version.metadata.default_spec_id


class IcebergSink(FileSink):
    afresh = (
        "delete the rows from there on (table.delete), and give the sink a new sink_id: the table keeps the old claim"
    )


@functools.cache
def catalog_of(name: str, settings: tuple[tuple[str, str], ...]) -> Catalog:
    """One for each process: it holds connections."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **dict(settings))


def iceberg_sink(
    table: str,
    mode: str = "append",
    *,
    catalog: str = "default",
    settings: Mapping[str, str] | None = None,
    partition_by: Sequence[str] | str = (),
    branch: str = MAIN,
    columns: Sequence[str] = (),
    where: str | None = None,
    on_bad_row: str = "fail",
    add_columns: bool = False,
    sink_id: str | None = None,
    accept_after: str | None = None,
) -> IcebergSink:
    """A sink that appends to the Iceberg table `NAMESPACE.NAME`, made if it is missing, with the package `pyiceberg`.

    `catalog` is a catalog that pyiceberg knows by its own settings (`~/.pyiceberg.yaml`, `PYICEBERG_CATALOG__...`), or
    `settings` says how to reach it. `partition_by` is how a table that the sink makes is partitioned: by columns,
    `"day(at)"`, `"bucket(16, account)"` and the like. The rows go into `branch`, which has to exist. `where` chooses
    which rows are written, and `columns` what of them, as expressions of Spark's SQL; without them, all rows and all
    columns. A row that the table cannot have ends the query, or is written into the table `<table>_quarantine` with
    `on_bad_row="quarantine"`. A new column is refused, or added to the table with `add_columns=True`. The batch is
    claimed in the table itself, under `sink_id`, or "semel". `accept_after` lets one batch follow that was refused:
    the refusal says which value.
    """
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise ImportError("a sink into Iceberg needs pyiceberg: pip install 'semel[iceberg]'") from error
    if mode != "append":
        raise ValueError(
            f"mode={mode!r}: a sink into Iceberg only appends, because pyiceberg would read and rewrite on the driver "
            "each file that has a row to change. Take the newest row of a key when you read, or use "
            'sql_sink(..., "upsert")'
        )
    if not table.rpartition(".")[0]:
        raise ValueError(f"{table!r} names no namespace: write NAMESPACE.NAME, as the catalog does")
    if sink_id is not None and "@" in sink_id:
        raise ValueError(f"sink_id={sink_id!r}: an @ stands before the branch in the name of a claim; leave it out")
    partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    files = IcebergFiles(
        catalog,
        settings or {},
        table,
        sink_id or "semel",
        branch=branch,
        partition_by=partitions,
        add_columns=add_columns,
        keeps_bad=checked_choice(on_bad_row) == "quarantine",
    )
    # With Spark Connect another machine writes the rows, and this one need not reach the catalog.
    if not is_remote() and files.catalog.table_exists(table):
        check_table(files.catalog.load_table(table), table, branch, partitions)
    name = f"iceberg:{catalog}.{table}:{key_of(files.sink_id, branch)}"
    return IcebergSink(name, files, Choice(tuple(columns), where), accept_after)
