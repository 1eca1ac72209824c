"""The measure of deduplication inside Spark: by the numbers of producers beside `dropDuplicatesWithinWatermark` by id,
on the same files. It must never count a run that kept a copy or lost a row."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from bench.clients import LoadFailed
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.sides import take_turns
from bench.spark_driver import TURNS, WARM_TURNS, SparkDriver, seconds_of_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PRODUCERS: Final = 10_000
FILES: Final = 16
FILES_PER_BATCH: Final = 8
COPIED_EVERY: Final = 10
"""One row in so many comes again, one file later."""
WAYS: Final = ("semel", "spark")


class SparkDedup(Measure):
    """A stream of rows from 10,000 producers, each with its producer, number, a random id of 32 characters, a time and
    60 B more, one row in eleven a copy; Parquet files in two batches, to nowhere, on two cores. `semel.spark.dedup`
    goes by the numbers; the peer is Spark's `dropDuplicatesWithinWatermark` by the id. Both have a session of
    `semel.spark.session`, whose state store is RocksDB, that did the same before; they take turns, and each goes first
    as often. The time is what the query's progress says that its micro-batches took, as for the source. State is the
    memory that the progress names for it at the end, and what lies in the checkpoint afterwards."""

    name = "spark-dedup"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows: ClassVar[tuple[Row, ...]] = tuple(
        Row.beside(
            f"Spark deduplication, 10,000 producers, {title}",
            f"semel_{metric}",
            f"spark_{metric}",
            Target(kind, bound),
            decimals=decimals,
            reason="the rules run in Python, and most of what they cost is that Spark takes each row there and back.",
        )
        for title, metric, kind, bound, decimals in (
            ("rows/s", "rows_per_second", Kind.RATIO_AT_LEAST, 2.0, 0),
            ("state in memory, MB", "memory_megabytes", Kind.RATIO_AT_MOST, 0.1, 1),
            ("state on disk, MB", "disk_megabytes", Kind.RATIO_AT_MOST, 0.1, 1),
        )
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        """No broker is started: the rows come out of files."""
        with _directory() as directory, SparkDriver() as ours, SparkDriver() as own:
            drivers = dict(zip(WAYS, (ours, own), strict=True))
            written = ours.run(write_rows, directory, scale.spark_dedup_rows)
            figures: dict[str, float] = {}
            seconds = dict.fromkeys(WAYS, 0.0)
            for turn, way in take_turns(WAYS, WARM_TURNS + TURNS):
                took, state = drivers[way].run(deduplicate, way, directory, scale.spark_dedup_rows)
                seconds[way] += took if turn >= WARM_TURNS else 0.0
                figures |= state
            return figures | {f"{way}_rows_per_second": TURNS * written / seconds[way] for way in WAYS}


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="semel-bench-dedup-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_rows(spark: SparkSession, directory: Path, count: int) -> int:
    """The files, and how many rows are in them, copies included."""
    per_file = count // FILES
    for number in range(FILES):
        begin = number * per_file
        new = spark.range(begin, begin + per_file, 1, 1)
        before = spark.range(max(0, begin - per_file), begin, COPIED_EVERY, 1)
        rows = (
            new.union(before)
            .coalesce(1)
            .selectExpr(
                f"id % {PRODUCERS} as pid",
                f"id div {PRODUCERS} as seq",
                "md5(cast(id as string)) as event_id",
                "timestamp_millis(1700000000000 + id) as at",
                "lpad(cast(id as string), 60, 'x') as payload",
            )
        )
        rows.write.mode("append").parquet(str(directory / "rows"))
    written: int = spark.read.parquet(str(directory / "rows")).count()
    return written


def _by_number(rows: DataFrame) -> DataFrame:
    from semel.spark import accepted, dedup

    return accepted(dedup(rows, producer="pid", epoch=None, sequence="seq", scope=[]))


def _by_id(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["event_id"])


_WAYS: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = dict(zip(WAYS, (_by_number, _by_id), strict=True))


def deduplicate(spark: SparkSession, way: str, directory: Path, distinct: int) -> tuple[float, Figures]:
    """How many seconds its micro-batches took, and how large the state has become."""
    from pyspark.sql import functions as F

    checkpoint = directory / f"checkpoint-{way}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    schema = spark.read.parquet(str(directory / "rows")).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH)
    once = _WAYS[way](stream.parquet(str(directory / "rows"))).observe("given", F.count(F.lit(1)).alias("rows"))
    writer = once.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.recentProgress
    given = sum(batch.observedMetrics["given"]["rows"] for batch in progress if "given" in batch.observedMetrics)
    if given != distinct // FILES * FILES:
        raise LoadFailed(f"{way} gave {given} rows out, and {distinct} are distinct")
    [state] = [batch.stateOperators[0] for batch in progress if batch.stateOperators][-1:]
    on_disk = sum(path.stat().st_size for path in (checkpoint / "state").rglob("*") if path.is_file())
    return seconds_of_batches(query), {
        f"{way}_memory_megabytes": state.memoryUsedBytes / 1e6,
        f"{way}_disk_megabytes": on_disk / 1e6,
    }
