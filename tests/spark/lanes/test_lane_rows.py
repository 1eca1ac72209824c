"""What the sink into the log takes: options, columns, and the digest of rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from semel.client.arrow.partitioner import Turns, murmur2, place_of_keys
from semel.client.errors import LogError
from semel.spark.lanes.digest import RunningDigest
from semel.spark.lanes.options import SinkOptions, check_for_batch, check_for_stream, read_options
from semel.spark.lanes.protocol import Digest, Order
from semel.spark.lanes.rows import RowReader, Rows, RowsRefused, check_schema, placed, topics_of
from semel.spark.lanes.stream_writer import BATCH_ID, batch_of_the_task
from semel.spark.lanes.writer import QUERY_ID, SparkNotUnderstood
from semel.wire.records import Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "sinkId": "s"}


def schema(columns: str) -> StructType:
    types = {"string": StringType(), "binary": BinaryType(), "int": IntegerType(), "long": LongType()}
    named = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, types[kind]) for name, kind in named])


def read(**options: str) -> SinkOptions:
    return read_options({**NEEDED, **options})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topik": "t"}, "option topik is not known; was topic meant?"),
        ({"sinkId": ""}, "option sinkId is missing"),
        ({"sinkId": "a b"}, "option sinkId: 'a b' may have letters"),
        ({"lanes": "0"}, "option lanes: '0' is not a whole number from 1 to 1000"),
        ({"acceptAfter": "7"}, "option acceptAfter: '7' is no mark, such as 41-9c1f02ab or nothing-7"),
        ({"transactionTimeout": "soon"}, "option transactionTimeout: 'soon' is not a time"),
        ({"transactionTimeout": "10ms"}, "of a second or more"),
        ({"transactionTimeout": "1m", "kafka.transaction.timeout.ms": "60000"}, "say the same: give one"),
        ({"transactionTimeout": "1m", "kafka.delivery.timeout.ms": "60001"}, "is not a time up to the transaction's"),
        ({"kafka.acks": "1"}, "option kafka.acks cannot be set: the sink's protocol sets it"),
        ({"kafka.enable.idempotence": "false"}, "option kafka.enable.idempotence cannot be set"),
        ({"kafka.transactional.id": "x"}, "option kafka.transactional.id cannot be set"),
        ({"kafka.lingger.ms": "5"}, "option kafka.lingger.ms is not known; was kafka.linger.ms meant?"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(options: dict[str, str], expected: str) -> None:
    with pytest.raises(LogError) as refused:
        read(**options)
    assert expected in str(refused.value)


def test_options_for_streams_and_for_batches_are_told_apart() -> None:
    with pytest.raises(LogError, match="option batchId is for batch writes"):
        check_for_stream(read(batchId="1"))
    with pytest.raises(LogError, match="option acceptAfter is for streams"):
        check_for_batch(read(acceptAfter="nothing-1"))
    with pytest.raises(LogError, match="option queryId needs option batchId"):
        check_for_batch(read(queryId="q"))
    orders = [read(**options).order for options in ({}, {"batchId": "1"}, {"batchId": "1", "queryId": "q"})]
    assert orders == [Order.SINGLE, Order.RISING, Order.CONSECUTIVE]


def test_the_progress_topic_is_the_one_that_is_named_or_that_of_the_sink() -> None:
    assert (read().progress_topic, read(progressTopic="markers").progress_topic) == ("semel-progress-s", "markers")


def test_what_spark_adds_to_the_options_is_passed_over() -> None:
    assert read(checkpointLocation="/somewhere", topic="t", LANES="3").lanes == 3


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("key string", "there is no column 'value'"),
        ("value int", "column 'value' is int, and a record's is string or binary: cast it"),
        ("value string, vaule string", "column 'vaule' is none of a record's"),
        ("value string, headers string", "column 'headers' is string"),
        ("value string, lane int", "column 'lane' was not made by semel.spark.lanes"),
        ("value string", "where do the rows go?"),
    ],
)
def test_columns_that_are_no_records_are_refused(columns: str, expected: str) -> None:
    with pytest.raises(RowsRefused) as refused:
        check_schema(schema(columns), None if expected.startswith("where") else "t")
    assert expected in str(refused.value)


def test_the_rows_of_the_source_can_be_written_as_they_are() -> None:
    assert check_schema(schema("value binary, topic string, offset long, timestampType int"), None) is None


def test_a_row_of_another_lane_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "lane": pa.array([1, 2], pa.int32())})
    with pytest.raises(RowsRefused, match="a row of another lane came to lane 1"):
        RowReader("t", 1).rows(batch)


def test_a_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"a"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(RowsRefused, match="null as its topic"):
        RowReader(None, 0).rows(batch)


def test_a_row_without_a_name_for_a_header_is_refused() -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}], [{"key": None, "value": b"1"}]], HEADERS)
    with pytest.raises(RowsRefused, match="a header without a name"):
        RowReader("t", 0).rows(pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": headers}))


@pytest.mark.parametrize("is_large", [False, True])
def test_a_row_becomes_a_record_with_all_that_it_has(is_large: bool) -> None:
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None], pa.large_string() if is_large else pa.string()),
            "value": pa.array([None, b"v"], pa.large_binary() if is_large else pa.binary()),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], []], HEADERS),
            "offset": pa.array([1, 2]),
        }
    )
    rows = RowReader("t", 0).rows(batch)
    assert rows.size == 2
    assert topics_of(rows) == ["t"]
    assert records_of(rows, {"t": 4}, first=1, now_ms=99) == {
        ("t", 3): [Record(None, b"k", [("h", b"1")], 1_700_000_000_123, 0)],
        ("t", 1): [Record(b"v", None, [], 99, 0)],
    }
    assert records_of(RowReader("t", 0).rows(batch.select(["value"])), {"t": 4}, first=2, now_ms=5) == {
        ("t", 2): [Record(None, None, [], 5, 0), Record(b"v", None, [], 5, 1)]
    }


def test_the_first_millisecond_of_1970_is_a_time_as_any_other() -> None:
    times = pa.array([None, 0, 999, 1000], pa.timestamp("us", tz="UTC"))
    rows = RowReader("t", 0).rows(pa.record_batch({"value": pa.array([b"v"] * 4), "timestamp": times}))
    (records,) = records_of(rows, {"t": 1}, now_ms=7).values()
    assert [record.timestamp_ms for record in records] == [7, 0, 0, 1]


def test_a_time_before_1970_is_refused() -> None:
    times = pa.array([None, -1], pa.timestamp("us", tz="UTC"))
    with pytest.raises(RowsRefused, match="a timestamp before 1970"):
        RowReader("t", 0).rows(pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": times}))


def test_a_partition_that_cannot_be_is_refused_by_its_number() -> None:
    def rows(*partitions: int | None) -> Rows:
        columns = {"value": pa.array([b"v"] * len(partitions)), "partition": pa.array(partitions, pa.int32())}
        return RowReader("t", 0).rows(pa.record_batch(columns))

    with pytest.raises(RowsRefused, match="a row names partition -2"):
        rows(0, -2)
    with pytest.raises(RowsRefused, match="a row names partition 4 of topic 't', which has 4"):
        records_of(rows(None, 4), {"t": 4})
    assert list(records_of(rows(-1, None), {"t": 4}, first=2)) == [("t", 2)]


def test_no_rows_go_nowhere() -> None:
    batch = pa.record_batch({"value": pa.array([], pa.binary()), "topic": pa.array([], pa.string())})
    rows = RowReader(None, 0).rows(batch)
    assert topics_of(rows) == []
    assert records_of(rows, {}) == {}
    assert digest_of([], []) == RunningDigest().value


COUNTS = {"a": 1, "b": 3, "c": 300}
TEXTS = st.none() | st.binary(max_size=4)
PLACED = st.lists(
    st.tuples(st.sampled_from(sorted(COUNTS)), TEXTS, TEXTS, st.none() | st.just(0), st.none() | st.integers(0, 9)),
    max_size=30,
)


@given(PLACED)
def test_each_row_goes_to_its_partition_in_the_order_of_the_rows(given_rows: list[Any]) -> None:
    topics, keys, values, partitions, times_ms = zip(*given_rows, strict=True) if given_rows else [()] * 5
    columns = {
        "topic": pa.array(topics, pa.string()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "partition": pa.array(partitions, pa.int32()),
        "timestamp": pa.array([None if one is None else one * 1000 for one in times_ms], pa.timestamp("us", tz="UTC")),
    }
    rows = RowReader(None, 0).rows(pa.record_batch(columns))
    expected: dict[tuple[str, int], list[Record]] = {}
    for topic, key, value, partition, time_ms in given_rows:
        # So few rows without a key all have the same turn.
        by_key = 0 if key is None else int(place_of_keys(murmur2(pa.array([key])), COUNTS[topic])[0])
        records = expected.setdefault((topic, by_key if partition is None else partition), [])
        records.append(Record(value, key, [], 77 if time_ms is None else time_ms, len(records)))
    assert records_of(rows, COUNTS, now_ms=77) == expected
    assert sorted(topics_of(rows)) == sorted({topic for topic, _ in expected})


def records_of(
    rows: Rows, counts: dict[str, int], *, first: int = 0, now_ms: int = 0
) -> dict[tuple[str, int], list[Record]]:
    """What consumers would read in each partition."""
    read = {}
    for topic, partition, columns in placed(rows, counts, Turns(lambda _: first), now_ms):
        assert (topic, partition) not in read
        values, keys = columns.values.to_pylist(), (columns.keys or pa.nulls(len(columns.values))).to_pylist()
        headers = (columns.headers or pa.nulls(len(values))).to_pylist()
        read[topic, partition] = [
            Record(value, key, [(one["key"], one["value"]) for one in named or ()], time_ms, offset)
            for offset, (value, key, named, time_ms) in enumerate(
                zip(values, keys, headers, columns.timestamps_ms.tolist(), strict=True)
            )
        ]
    return read


def test_a_column_without_values_is_as_one_that_is_not_there() -> None:
    none = np.full(1, -1)
    empty = Rows("t", pa.array([b"v"]), pa.nulls(1, pa.binary()), none, none, pa.nulls(1, HEADERS))
    digests = [RunningDigest(), RunningDigest()]
    for digest, rows in zip(digests, (empty, Rows("t", pa.array([b"v"]))), strict=True):
        digest.add(rows)
    assert digests[0].value == digests[1].value


def test_one_topic_for_all_is_as_the_same_one_in_each_row() -> None:
    digests = [RunningDigest(), RunningDigest()]
    for digest, topics in zip(digests, ("t", pa.array(["t", "t"])), strict=True):
        digest.add(Rows(topics, pa.array([b"v", None])))
    assert digests[0].value == digests[1].value


# Short texts are hashed in another way than long ones.
DIGESTED = TEXTS | st.integers(5, 20).map(bytes) | st.integers(254, 260).map(bytes)
ROWS = st.lists(st.tuples(DIGESTED, DIGESTED, st.none() | st.integers(0, 3), st.lists(TEXTS, max_size=2)), max_size=12)


def digest_of(rows: list[Any], cuts: list[int]) -> Digest:
    """The digest of rows that come in several batches."""
    running = RunningDigest()
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[begin:end]
        columns = {
            "key": pa.array([row[0] for row in part], pa.binary()),
            "value": pa.array([row[1] for row in part], pa.binary()),
            "partition": pa.array([row[2] for row in part], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": one} for one in row[3]] for row in part], HEADERS),
        }
        running.add(RowReader("t", 0).rows(pa.record_batch(columns)))
    return running.value


@given(ROWS, st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_the_order_or_on_batches(rows: list[Any], chance: random.Random) -> None:
    shuffled = chance.sample(rows, len(rows))
    cuts = sorted(chance.randint(0, len(rows)) for _ in range(2))
    assert digest_of(shuffled, cuts) == digest_of(rows, [])


@given(ROWS, ROWS)
def test_other_rows_have_another_digest(rows: list[Any], others: list[Any]) -> None:
    def order(row: Any) -> str:
        return repr(row)

    assert (digest_of(rows, []) == digest_of(others, [])) == (sorted(rows, key=order) == sorted(others, key=order))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 255, 257])
def test_a_value_that_differs_in_one_bit_has_another_digest(size: int) -> None:
    values = {bytes(size)}
    for at in range(size):
        for bit in range(8):
            changed = bytearray(size)
            changed[at] ^= 1 << bit
            values.add(bytes(changed))
    assert len({digest_of([(None, value, None, [])], []) for value in values}) == 8 * size + 1


def test_a_value_and_a_key_that_change_places_are_other_rows() -> None:
    assert digest_of([(b"a", b"b", None, [])], []) != digest_of([(b"b", b"a", None, [])], [])


ROW: dict[str, Any] = {"topic": "t", "value": b"v", "key": b"k", "partition": 1, "timestamp": 5000, "headers": []}
ALTERED: dict[str, Any] = {
    "topic": "u",
    "value": b"w",
    "key": b"l",
    "partition": 2,
    "timestamp": 6000,
    "headers": [{"key": "h", "value": b"1"}],
}
KINDS = {
    "topic": pa.string(),
    "value": pa.binary(),
    "key": pa.binary(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS,
}


def digest_of_row(row: dict[str, Any], topic: str | None = None) -> Digest:
    running = RunningDigest()
    running.add(RowReader(topic, 0).rows(pa.record_batch({name: pa.array([row[name]], KINDS[name]) for name in row})))
    return running.value


@pytest.mark.parametrize("name", list(ROW))
def test_a_row_that_differs_in_one_column_alone_has_another_digest(name: str) -> None:
    """Else a batch that was planned again, and has that row, would be taken for the one that was written."""
    altered = {**ROW, name: ALTERED[name]}
    assert digest_of_row(altered) != digest_of_row(ROW)
    assert digest_of_row({**ROW, name: None if name != "topic" else ""}) != digest_of_row(altered)


def test_rows_for_another_topic_have_another_digest_if_an_option_names_it() -> None:
    row = {"value": b"v"}
    assert digest_of_row(row, "t") != digest_of_row(row, "u")


def test_a_digest_is_the_same_in_each_version_of_semel() -> None:
    """Markers hold digests: after another version has changed them, a batch that is there would be refused."""
    assert digest_of_row({"value": b"v"}, "t") == Digest(1, 0xFFEB72EEC67EA7FA)
    assert digest_of_row(ALTERED) == Digest(1, 0xA9FE87287E13F000)
    assert digest_of_row({"value": bytes(300)}, "t") == Digest(1, 0xD3449AED040D0C63)


@pytest.mark.parametrize("key", [b"", b"None", b"nan"])
def test_a_row_without_a_key_is_another_one_than_with_any(key: bytes) -> None:
    other = (b"k", b"v", None, [])
    assert digest_of([(None, b"v", None, []), other], []) != digest_of([(key, b"v", None, []), other], [])


def test_outside_of_a_task_nothing_is_guessed() -> None:
    with pytest.raises(SparkNotUnderstood):
        batch_of_the_task()


@pytest.fixture
def properties() -> Iterator[dict[str, str]]:
    """Of the task in which the test runs."""
    context = TaskContext._getOrCreate()
    context._localProperties = {}
    yield context._localProperties
    TaskContext._setTaskContext(None)  # type: ignore[attr-defined]


def test_a_task_knows_its_query_and_its_batch_or_writes_nothing(properties: dict[str, str]) -> None:
    properties |= {QUERY_ID: "q", BATCH_ID: "17"}
    assert batch_of_the_task() == ("q", 17)
    for unknown in ({QUERY_ID: ""}, {BATCH_ID: ""}, {BATCH_ID: "-1"}):
        before = dict(properties)
        properties |= unknown
        with pytest.raises(SparkNotUnderstood, match="does not tell its tasks"):
            batch_of_the_task()
        properties |= before
    for name in (QUERY_ID, BATCH_ID):
        value = properties.pop(name)
        with pytest.raises(SparkNotUnderstood, match=f"{name}=None"):
            batch_of_the_task()
        properties[name] = value
