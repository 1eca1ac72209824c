"""What the sink into the log takes: options, columns, and the digest of rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from semel.spark.lanes.digest import RunningDigest
from semel.spark.lanes.options import SinkOptions, check_for_batch, check_for_stream, read_options
from semel.spark.lanes.protocol import Digest, Order
from semel.spark.lanes.rows import RowReader, Rows, RowsRefused, check_schema
from semel.spark.lanes.writer import SparkNotUnderstood, _batch_of_the_task
from semel.spark.log.errors import LogError

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
    with pytest.raises(LogError, match="option firstBatch is for streams"):
        check_for_batch(read(firstBatch="1"))
    with pytest.raises(LogError, match="option queryId needs option batchId"):
        check_for_batch(read(queryId="q"))
    orders = [read(**options).order for options in ({}, {"batchId": "1"}, {"batchId": "1", "queryId": "q"})]
    assert orders == [Order.SINGLE, Order.RISING, Order.CONSECUTIVE]


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


def test_a_row_becomes_a_record_with_all_that_it_has() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None]),
            "value": pa.array([None, b"v"]),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], []], pa.list_(header)),
            "offset": pa.array([1, 2]),
        }
    )
    assert list(RowReader("t", 0).rows(batch).records()) == [
        ("t", None, b"k", 3, None, None, 1_700_000_000_123, [("h", b"1")]),
        ("t", b"v", None, -1, None, None, 0, None),
    ]
    assert list(RowReader("t", 0).rows(batch.select(["key", "value"])).records()) == [
        ("t", None, b"k"),
        ("t", b"v", None),
    ]


@pytest.mark.parametrize("microseconds", [0, 999])
def test_a_time_that_a_client_would_take_for_now_is_refused(microseconds: int) -> None:
    times = pa.array([None, microseconds], pa.timestamp("us", tz="UTC"))
    with pytest.raises(RowsRefused, match="the first millisecond of 1970"):
        RowReader("t", 0).rows(pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": times}))


def test_a_column_without_values_is_as_one_that_is_not_there() -> None:
    empty = Rows(1, "t", [b"v"], [None], [-1], [0], [None])
    digests = [RunningDigest(), RunningDigest()]
    for digest, rows in zip(digests, (empty, Rows(1, "t", [b"v"])), strict=True):
        digest.add(rows)
    assert digests[0].value == digests[1].value


TEXTS = st.none() | st.binary(max_size=4)
ROWS = st.lists(st.tuples(TEXTS, TEXTS, st.none() | st.integers(0, 3)), max_size=12)


def digest_of(rows: list[Any], cuts: list[int]) -> Digest:
    """The digest of rows that come in several batches."""
    running = RunningDigest()
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[begin:end]
        partitions = [-1 if row[2] is None else row[2] for row in part]
        running.add(Rows(len(part), "t", [row[1] for row in part], [row[0] for row in part], partitions))
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


def test_a_value_and_a_key_that_change_places_are_other_rows() -> None:
    assert digest_of([(b"a", b"b", None)], []) != digest_of([(b"b", b"a", None)], [])


@pytest.mark.parametrize("key", [b"", b"None", b"nan"])
def test_a_row_without_a_key_is_another_one_than_with_any(key: bytes) -> None:
    assert digest_of([(None, b"v", None), (b"k", b"v", None)], []) != digest_of(
        [(key, b"v", None), (b"k", b"v", None)], []
    )


def test_outside_of_a_task_nothing_is_guessed() -> None:
    with pytest.raises(SparkNotUnderstood):
        _batch_of_the_task()
