"""What the Spark that runs lacks beside the newest one, and what does the same there.

The versions of Spark differ here and nowhere else, except in what a module cannot define at all without a newer Spark:
`source/limited_stream` and `lanes/stream_writer`. Nothing here may change what a newer Spark does.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import TYPE_CHECKING, Any, Final

import pyspark

try:
    from pyspark.errors import AnalysisException
    from pyspark.sql import datasource
except ImportError:
    raise ImportError(
        f"semel.spark needs Spark 4.0 or newer, and this is Spark {pyspark.__version__}: pip install 'semel[spark]'"
    ) from None

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

THIS_SPARK: Final = f"Spark {pyspark.__version__}"
# From 4.2 on Spark hands a source written in Python the limits of a batch.
ASKS_FOR_LIMITS: Final = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
# From 4.1 on a sink written in Python may take the batches of a stream as Arrow has them.
STREAMS_INTO_PYTHON: Final = hasattr(datasource, "DataSourceStreamArrowWriter")

_MASK: Final = 0xFFFF_FFFF
_SPARK_SEED: Final = 42


def register(session: SparkSession, source: type[DataSource]) -> None:
    """Make a source known to a session; Spark 4.0 refuses the name of one that it has found installed."""
    try:
        session.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def arrow_schema(schema: StructType, timezone: str | None) -> Any:
    """The schema as Arrow has it, with times of this zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone=timezone)
    return to_arrow_schema(schema)


def partitioned_by_number(rows: DataFrame, count: int, column: str) -> DataFrame:
    """The rows with the number i in this column in the partition i, of so many partitions."""
    if hasattr(rows, "repartitionById"):
        return rows.repartitionById(count, column)
    from pyspark.sql import functions as sf

    # Spark 4.0 spreads rows by the hash of a column, so each number becomes one with the right hash.
    salts = sf.array(*map(sf.lit, salts_of(count)))
    return rows.repartition(count, sf.element_at(salts, sf.col(column) + 1))


def salts_of(count: int) -> list[int]:
    """For each partition a number that Spark's hash brings there."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < count:
        found.setdefault(_hash(candidate) % count, candidate)
        candidate += 1
    return [found[partition] for partition in range(count)]


def _hash(number: int) -> int:
    """Spark's `hash` of an integer of 32 bits: Murmur3, of one block."""
    block = _rotated(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    mixed = _rotated(_SPARK_SEED ^ block, 13) * 5 + 0xE6546B64 & _MASK
    mixed ^= 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _MASK
