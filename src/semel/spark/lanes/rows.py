"""The rows of a data frame as records: which columns there may be, and what a record has of each.

Columns are those of Spark's own Kafka sink, and `timestamp` and `lane` besides. Nothing is ever dropped that a user may
have meant to be written: what no record can have is refused by its name, when the query starts.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from semel.spark.log.errors import LogError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LANE: Final = "lane"
# Under which name the column `lane` says of how many it is one.
LANE_COUNT: Final = "semel.lanes"

_TEXT: Final = ("string", "binary")
_TYPES: Final = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    LANE: ("int",),
}
# What the source says of where a record was. Where one is copied to, it has another place.
_OF_THE_SOURCE: Final = frozenset(("offset", "timestampType", "producer_id", "producer_epoch", "sequence"))


class RowsRefused(LogError, ValueError):
    """The data frame cannot be written to a log as it is."""


# What stands for a partition and for a time that a row does not name.
PARTITION_BY_KEY: Final = -1
TIME_OF_WRITING: Final = 0
Headers = list[tuple[str, str | bytes | None]]
# What `Producer.produce` is given for one row, in its order.
Record = tuple[Any, ...]


class Rows(NamedTuple):
    """Rows as columns of Python values. A column that is None is not there; a topic may be that of all rows."""

    size: int
    topics: str | list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    partitions: list[int] | None = None
    timestamps_ms: list[int] | None = None
    headers: list[Headers | None] | None = None

    def records(self) -> Iterator[Record]:
        """Short where it can be: each argument is paid for every row."""
        topics = repeat(self.topics) if isinstance(self.topics, str) else self.topics
        keys = self.keys if self.keys is not None else repeat(None)
        if self.partitions is None and self.timestamps_ms is None and self.headers is None:
            # What repeats has no end, so nothing here can be strict.
            return zip(topics, self.values, keys, strict=False)
        return zip(
            topics,
            self.values,
            keys,
            self.partitions if self.partitions is not None else repeat(PARTITION_BY_KEY),
            *(repeat(None), repeat(None)),
            self.timestamps_ms if self.timestamps_ms is not None else repeat(TIME_OF_WRITING),
            self.headers if self.headers is not None else repeat(None),
            strict=False,
        )


def check_schema(schema: "StructType", topic: str | None) -> int | None:
    """Refuses what cannot be written; gives the number of lanes that the rows were brought into, if they were."""
    for field in schema.fields:
        if field.name in _OF_THE_SOURCE:
            continue
        allowed = _TYPES.get(field.name)
        if allowed is None:
            raise RowsRefused(
                f"column {field.name!r} is none of a record's: {', '.join(_TYPES)}. Drop it, or rename it"
            )
        found = field.dataType.simpleString()
        if found not in allowed:
            raise RowsRefused(f"column {field.name!r} is {found}, and a record's is {' or '.join(allowed)}: cast it")
    names = schema.fieldNames()
    if "value" not in names:
        raise RowsRefused(f"there is no column 'value' among {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise RowsRefused("where do the rows go? Give option topic, or a column 'topic'")
    if LANE not in names:
        return None
    count = schema[LANE].metadata.get(LANE_COUNT)
    if not isinstance(count, int):
        raise RowsRefused("column 'lane' was not made by semel.spark.lanes: drop it, or rename it")
    return count


class RowReader:
    """Turns the record batches of one lane into rows, and sees to it that they are of this lane."""

    def __init__(self, topic: str | None, lane: int) -> None:
        self._topic = topic
        self._lane = lane

    def rows(self, batch: pa.RecordBatch) -> Rows:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if LANE in columns:
            self._check_lane(columns[LANE])
        return Rows(
            batch.num_rows,
            self._topic or _topics(columns["topic"]),
            _texts(columns["value"]),
            _texts(columns["key"]) if "key" in columns and columns["key"].null_count < batch.num_rows else None,
            _numbers(columns["partition"], PARTITION_BY_KEY) if "partition" in columns else None,
            _milliseconds(columns["timestamp"]) if "timestamp" in columns else None,
            [_headers(row) for row in columns["headers"].to_pylist()] if "headers" in columns else None,
        )

    def _check_lane(self, lanes: Any) -> None:
        ends = pc.min_max(lanes).as_py()
        if lanes.null_count or (len(lanes) and (ends["min"], ends["max"]) != (self._lane, self._lane)):
            raise RowsRefused(
                f"a row of another lane came to lane {self._lane}: semel.spark.lanes has to be the last step that "
                "moves rows, and its column 'lane' stays as it is"
            )


def _texts(column: Any) -> list[bytes | None]:
    """Keys and values as bytes, whether they were text or not; Arrow copies none for the cast."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    texts: list[bytes | None] = column.to_pylist()
    return texts


def _topics(column: Any) -> list[str]:
    if column.null_count:
        raise RowsRefused("a row has null as its topic: give every row one, or set option topic")
    topics: list[str] = column.to_pylist()
    return topics


def _numbers(column: Any, missing: int) -> list[int]:
    return [missing if number is None else number for number in column.to_pylist()]


def _milliseconds(column: Any) -> list[int]:
    microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    milliseconds = [None if number is None else number // 1000 for number in microseconds]
    if TIME_OF_WRITING in milliseconds:
        raise RowsRefused(
            "a row has the first millisecond of 1970 as its timestamp, and would be written with the time of writing: "
            "make it null if that is meant, or another time"
        )
    return [TIME_OF_WRITING if number is None else number for number in milliseconds]


def _headers(headers: list[dict[str, Any]] | None) -> Headers | None:
    return [(header["key"], header["value"]) for header in headers] if headers else None
