"""The files of an Iceberg table: each task writes Parquet with `pyiceberg`, and hands over what a commit needs of them.

A file has a name that no other task and no other attempt uses, and belongs to the table only by the commit. The driver
never sees a row.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from semel.spark.columns_by_number import map_in_arrow
from semel.spark.tables.delta_files import NAME_BYTES_MAX, too_long
from semel.spark.tables.file_rows import column_of, not_utf8
from semel.spark.tables.task_files import gathered

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyspark.sql import Column, DataFrame

# What stays one character in the name of a partition's directory; each other byte becomes three.
PLAIN: Final = "[A-Za-z0-9_.~ -]"
# The properties of a table whose files lie in no directory of their partition.
FLAT: Final = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}


@dataclass(frozen=True)
class Writing:
    """What a task needs to write."""

    metadata: str
    io: FileIO
    schema: Schema
    """The columns of the rows."""

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.table.metadata import TableMetadataUtil

        metadata = TableMetadataUtil.parse_raw(self.metadata)
        types = schema_to_pyarrow(self.schema, include_field_ids=False)
        for rows in gathered(batches):
            # The times of Spark have the session's zone.
            table = rows.cast(types)
            for field in metadata.schema().fields:
                if field.required and table[field.name].null_count:
                    raise ValueError(f"column {field.name!r} is null, and the table requires it")
            files = [*data_files(metadata, table, self.io)]
            # The library chooses the rows of each partition by a comparison of values.
            if (count := sum(file.record_count for file in files)) != table.num_rows:
                raise RuntimeError(
                    f"pyiceberg wrote {count} rows into the files of {table.num_rows}: their partitions overlap, or "
                    "lack some. Nothing was written"
                )
            for file in files:
                yield pyarrow.record_batch({"file": [pickle.dumps(file)]})


def data_files(metadata: Any, rows: pyarrow.Table, io: FileIO) -> Iterable[DataFile]:
    """Writes the rows. The library has no public function that writes files without a commit."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    return _dataframe_to_data_files(metadata, rows, io)


def written(table: Table, rows: DataFrame, schema: Schema) -> list[DataFile]:
    writing = Writing(table.metadata.model_dump_json(), table.io, schema)
    # A task that ran twice hands over the files of one run: the others are in no commit.
    return [pickle.loads(bytes(row.file)) for row in map_in_arrow(rows, writing, "file binary").collect()]


def reasons(table: Table, rows: DataFrame) -> list[Column]:
    """Why the table cannot have a row: columns, each of which is null if it can."""
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import StringType
    from pyspark.sql import functions as f

    schema = table.schema()
    required = [field.name for field in schema.fields if field.required]
    found = [f.when(column_of(name).isNull(), f"column {name!r} is null, and required") for name in required]
    in_rows = {field.name for field in rows.schema.fields}
    texts = [
        field.name for field in schema.fields if field.name in in_rows and isinstance(field.field_type, StringType)
    ]
    found += not_utf8(texts)
    # A store has keys and no directories.
    has_directories = table.location().startswith("file:") or "://" not in table.location()
    if has_directories and not FLAT.items() <= table.properties.items():
        for partition in table.spec().fields:
            name = schema.find_column_name(partition.source_id) or ""
            if isinstance(partition.transform, IdentityTransform) and name in texts:
                column, rest = column_of(name), len(f"{partition.name}=".encode()) * 3
                others = f.octet_length(f.regexp_replace(column, PLAIN, ""))
                found.append(f.when(f.octet_length(column) + others * 2 + rest > NAME_BYTES_MAX, too_long(name)))
    return found
