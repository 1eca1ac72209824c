"""An Iceberg table as rows: the files of one snapshot, read by pyiceberg, without Spark.

Rows that were deleted are not read, and columns are found by their number, as every reader of Iceberg finds them. A
file is read as a whole, in the columns that are asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from semel.audit.errors import AuditFailed, failed, meant
from semel.audit.places import Piece
from semel.audit.rows import Rows, Wanted

try:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
except ImportError:
    raise AuditFailed("Iceberg tables need the package pyiceberg: pip install 'semel[iceberg]'") from None


@dataclass(frozen=True)
class IcebergFile:
    """One file of the table, with what was deleted from it."""

    name: str
    metadata: str
    io: FileIO = field(repr=False)
    task: FileScanTask

    @property
    def rows(self) -> int:
        return int(self.task.file.record_count)

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        metadata: TableMetadata = TableMetadataUtil.parse_raw(self.metadata)
        try:
            schema = metadata.schema().select(*wanted.columns)
            for batch in ArrowScan(metadata, self.io, schema, AlwaysTrue()).to_record_batches([self.task]):
                yield wanted.rows_of({name: batch.column(name) for name in wanted.columns})
        except (OSError, pa.ArrowException, ValueError) as error:
            raise failed(self.name, error) from None


@dataclass(frozen=True)
class IcebergPlace:
    """A table of a catalog, as a branch, a tag or a snapshot has it."""

    name: str
    table: str
    catalog: str
    settings: Mapping[str, str] = field(repr=False)
    ref: str | None
    snapshot: int | None
    wanted: Wanted

    def pieces(self) -> Sequence[Piece]:
        try:
            table = load_catalog(self.catalog, **self.settings).load_table(self.table)
            columns = [one.name for one in table.schema().fields]
            snapshot = self.snapshot
            if self.ref is not None:
                named = table.metadata.snapshot_by_name(self.ref)
                if named is None:
                    raise AuditFailed(f"{self.name} has no branch and no tag {self.ref!r}")
                snapshot = named.snapshot_id
            tasks = list(table.scan(snapshot_id=snapshot).plan_files())
        except AuditFailed:
            raise
        except Exception as error:
            # Each catalog has errors of its own: those of its database, of HTTP, of its cloud. What has no address is
            # told to use an option of pyiceberg's own command.
            raise failed(self.name, str(error).replace("--uri", "catalog.uri=...")) from None
        for column in self.wanted.columns:
            if column not in columns:
                raise AuditFailed(f"{self.name} has no column {column!r}{meant(column, columns)}")
        metadata = table.metadata.model_dump_json()
        return [IcebergFile(self.name, metadata, table.io, task) for task in tasks]
