"""Turns the rows of a data frame into records: which columns are allowed, what a record gets from each, and where it
goes.

The columns are those of Spark's own Kafka sink, and also `timestamp` and `lane`. A column that the user may have meant
to write is never dropped: a column that no record can have is refused by its name, when the query starts. Rows stay in
Arrow's columns all the way, and no Python object is made for a row.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semel.client.arrow.encoding import Columns, is_valid
from semel.client.arrow.layout import Integers
from semel.client.arrow.partitioner import Turns, murmur2, order_of, place_of_keys
from semel.client.errors import LogError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LANE: Final = "lane"
# The key in the metadata of the column `lane` under which the number of lanes is.
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
# The columns with which the source says where a record was. A copy of the record has another place.
_OF_THE_SOURCE: Final = frozenset(("offset", "timestampType", "producer_id", "producer_epoch", "sequence"))


class RowsRefused(LogError, ValueError):
    """The data frame cannot be written to a log as it is."""


# Stand for a partition and for a time that a row does not have. No record has a time before 1970.
BY_KEY: Final = -1
TIME_OF_WRITING: Final = -1

_MICROSECONDS_PER_MS: Final = 1000


class Rows(NamedTuple):
    """Rows as columns, in Arrow if they are texts. None stands for a missing column; `topics` may be one topic for all
    rows."""

    topics: str | Any
    values: Any
    keys: Any | None = None
    partitions: Integers | None = None
    timestamps_ms: Integers | None = None
    headers: Any | None = None

    @property
    def size(self) -> int:
        return len(self.values)


def check_schema(schema: "StructType", topic: str | None) -> int | None:
    """Refuses columns that cannot be written; returns the number of lanes if `semel.spark.lanes` brought the rows into
    lanes."""
    for field in schema.fields:
        if field.name in _OF_THE_SOURCE:
            continue
        allowed = _TYPES.get(field.name)
        if allowed is None:
            raise RowsRefused(
                f"column {field.name!r} is none of a record's: {', '.join(_TYPES)}. Drop it, or rename it"
            )
        kind = field.dataType.simpleString()
        if kind not in allowed:
            raise RowsRefused(f"column {field.name!r} is {kind}, and a record's is {' or '.join(allowed)}: cast it")
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
    """Turns the record batches of one lane into rows, and checks that they belong to this lane."""

    def __init__(self, topic: str | None, lane: int) -> None:
        self._topic = topic
        self._lane = lane

    def rows(self, batch: pa.RecordBatch) -> Rows:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if LANE in columns:
            self._check_lane(columns[LANE])
        return Rows(
            self._topic or _topics(columns["topic"]),
            _octets(columns["value"]),
            _octets(columns["key"]) if "key" in columns and columns["key"].null_count < batch.num_rows else None,
            _partitions(columns["partition"]) if "partition" in columns else None,
            _milliseconds(columns["timestamp"]) if "timestamp" in columns else None,
            _headers(columns["headers"]) if "headers" in columns else None,
        )

    def _check_lane(self, lanes: Any) -> None:
        ends = pc.min_max(lanes).as_py()
        if lanes.null_count or (len(lanes) and (ends["min"], ends["max"]) != (self._lane, self._lane)):
            raise RowsRefused(
                f"a row of another lane came to lane {self._lane}: semel.spark.lanes has to be the last step that "
                "moves rows, and its column 'lane' stays as it is"
            )


def topics_of(rows: Rows) -> list[str]:
    """The topics that the rows go to."""
    if isinstance(rows.topics, str):
        return [rows.topics]
    topics: list[str] = rows.topics.unique().to_pylist()
    return topics


def placed(
    rows: Rows, partition_counts: Mapping[str, int], turns: Turns, now_ms: int
) -> Iterator[tuple[str, int, Columns]]:
    """The rows of each partition, in their order. The rows of a partition are not copied if they are next to each
    other."""
    if not rows.size:
        return
    topics, topic_of_rows = _numbered_topics(rows)
    counts = [partition_counts[topic] for topic in topics]
    # One number for each partition of each topic.
    firsts = np.cumsum([0, *counts])
    places = _places(rows, topics, counts, topic_of_rows, turns)
    if topic_of_rows is not None:
        places += firsts[topic_of_rows]
    times_ms = np.full(rows.size, now_ms) if rows.timestamps_ms is None else rows.timestamps_ms
    if rows.timestamps_ms is not None and int(times_ms.min()) == TIME_OF_WRITING:
        times_ms = np.where(times_ms == TIME_OF_WRITING, now_ms, times_ms)
    columns = Columns(rows.values, rows.keys, times_ms, rows.headers)
    for place, part in _parted(columns, places):
        topic = int(np.searchsorted(firsts, place, "right")) - 1
        yield topics[topic], place - int(firsts[topic]), part


def _numbered_topics(rows: Rows) -> tuple[list[str], Integers | None]:
    """The topics, and the number of each row's topic; None if all rows have one topic."""
    if isinstance(rows.topics, str):
        return [rows.topics], None
    numbered = rows.topics.dictionary_encode()
    numbers = np.frombuffer(numbered.indices.buffers()[1], np.int32, rows.size, 4 * numbered.indices.offset)
    return numbered.dictionary.to_pylist(), numbers.astype(np.int64)


def _places(rows: Rows, topics: list[str], counts: list[int], topic_of_rows: Integers | None, turns: Turns) -> Integers:
    """The partition of each row in its topic."""
    count_of_rows = counts[0] if topic_of_rows is None else np.array(counts)[topic_of_rows]
    if rows.partitions is None:
        places, is_open = np.full(rows.size, BY_KEY), np.ones(rows.size, np.bool_)
    else:
        places, is_open = rows.partitions.copy(), rows.partitions == BY_KEY
        beyond = np.flatnonzero(places >= count_of_rows)
        if len(beyond):
            number = 0 if topic_of_rows is None else int(topic_of_rows[beyond[0]])
            named = f"partition {int(places[beyond[0]])} of topic {topics[number]!r}"
            raise RowsRefused(f"a row names {named}, which has {counts[number]}")
    if rows.keys is not None and bool(is_open.any()):
        by_key = is_open & is_valid(rows.keys) if rows.keys.null_count else is_open
        places = np.where(by_key, place_of_keys(murmur2(rows.keys), count_of_rows), places)
        is_open = is_open & ~by_key
    if bool(is_open.any()):
        for number, (topic, count) in enumerate(zip(topics, counts, strict=True)):
            in_turn = np.flatnonzero(is_open if topic_of_rows is None else is_open & (topic_of_rows == number))
            if len(in_turn):
                places[in_turn] = turns.places(topic, len(in_turn), count)
    return places


def _parted(columns: Columns, places: Integers) -> Iterator[tuple[int, Columns]]:
    """The rows of each place that has rows."""
    edges = _edges(places)
    order = None
    runs_of_places = np.bincount(places[edges[:-1]])
    if int(runs_of_places.max()) > 1:
        order = order_of(places)
        places = places[order]
        edges = _edges(places)
    for start, stop in zip(edges.tolist(), edges[1:].tolist(), strict=False):
        part = columns.cut(start, stop) if order is None else _selected(columns, order[start:stop])
        yield int(places[start]), part


def _edges(places: Integers) -> Integers:
    """Where each run of rows of one place begins, and the end of the last run."""
    return np.concatenate(([0], np.flatnonzero(places[1:] != places[:-1]) + 1, [len(places)]))


def _selected(columns: Columns, rows: Integers) -> Columns:
    # `pa.array` would import pandas.
    indices = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
    return Columns(
        columns.values.take(indices),
        None if columns.keys is None else columns.keys.take(indices),
        columns.timestamps_ms[rows],
        None if columns.headers is None else columns.headers.take(indices),
    )


def _octets(column: Any) -> Any:
    """Keys and values as bytes, whether they were text or not; Arrow's cast copies nothing."""
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column


def _topics(column: Any) -> Any:
    if column.null_count:
        raise RowsRefused("a row has null as its topic: give every row one, or set option topic")
    return column


def _partitions(column: Any) -> Integers:
    partitions = _numbers(column, np.dtype(np.int32), BY_KEY)
    if len(partitions) and int(partitions.min()) < BY_KEY:
        raise RowsRefused(f"a row names partition {int(partitions.min())}: make it null where the key shall say it")
    return partitions


def _milliseconds(column: Any) -> Integers:
    microseconds = column.cast(pa.timestamp("us", tz="UTC"))
    times_ms = _numbers(microseconds, np.dtype(np.int64), 0) // _MICROSECONDS_PER_MS
    if len(times_ms) and int(times_ms.min()) < 0:
        raise RowsRefused("a row has a timestamp before 1970, which no record can have: make it null, or another time")
    if column.null_count:
        times_ms[~is_valid(microseconds)] = TIME_OF_WRITING
    return times_ms


def _numbers(column: Any, kind: np.dtype[Any], missing: int) -> Integers:
    """The numbers of a column, with `missing` for null."""
    if not len(column):
        return np.empty(0, np.int64)
    numbers = np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize).astype(np.int64)
    if column.null_count:
        numbers[~is_valid(column)] = missing
    return numbers


def _headers(column: Any) -> Any | None:
    """The column, if any row has a header."""
    headers = column.flatten()
    if not len(headers):
        return None
    names, _ = headers.flatten()
    if names.null_count:
        raise RowsRefused("a row has a header without a name: give every header one")
    return column
