"""Streams for the tests: a directory of Parquet files, read one file a batch, and what each batch gave out."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet
import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_SECONDS_MAX = 300


@dataclass
class Feed:
    """Files that a query reads one by one, its checkpoint, and the rows of each batch by its number."""

    spark: "SparkSession"
    directory: Path
    schema: pa.Schema
    batches: dict[int, list["Row"]] = field(default_factory=dict)
    _names: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def write(self, *rows: Sequence[object]) -> None:
        """One file, which is one batch."""
        input_directory = self.directory / "input"
        input_directory.mkdir(exist_ok=True)
        columns = [list(column) for column in zip(*rows, strict=True)]
        table = pa.table(columns, schema=self.schema)
        # Written aside and renamed: the query must not see half of it.
        path = self.directory / "next.parquet"
        pyarrow.parquet.write_table(table, path)
        path.rename(input_directory / f"{next(self._names):05}.parquet")

    def stream(self) -> "DataFrame":
        schema = self.spark.createDataFrame(self.schema.empty_table()).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.directory / "input"))

    def start(self, way: Callable[["DataFrame"], "DataFrame"], **trigger: object) -> "StreamingQuery":
        def keep(rows: "DataFrame", batch_id: int) -> None:
            self.batches[batch_id] = rows.collect()

        writer = way(self.stream()).writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()  # type: ignore[call-overload,no-any-return]

    def run(self, way: Callable[["DataFrame"], "DataFrame"]) -> None:
        """All that is there, to its end."""
        query = self.start(way, availableNow=True)
        try:
            assert query.awaitTermination(WAIT_SECONDS_MAX), "the query did not end"
        finally:
            query.stop()

    def forget_last_commit(self) -> int:
        """As if the driver had died between the sink's commit and Spark's."""
        commits = sorted(
            (path for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        last = commits[-1]
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        return int(last.name)

    def shown(self, *names: str) -> list[tuple[object, ...]]:
        """These columns of all rows, batch by batch."""
        return [
            tuple(row[name] for name in names) for batch_id in sorted(self.batches) for row in self.batches[batch_id]
        ]

    def kept(self) -> list["Row"]:
        """The values in the state store, as they were after the last batch."""
        if " " in str(self.checkpoint):
            pytest.skip("Spark's reader of state reads no checkpoint whose path has a space")
        state = self.spark.read.format("statestore").load(str(self.checkpoint))
        return state.select("value.groupState.*").collect()
