"""What a batch read takes of the log: what lies between its bounds, once."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from log_under_test import LogUnderTest
from pyspark.sql.datasource import InputPartition
from small_driver import source

from asking import Asker
from cluster_under_test import FOREIGN_CLUSTER
from semel.client.errors import CorruptRecords, UnknownTopic
from semel.spark.source.errors import DataLoss, OptionRefused
from semel.wire.batch import close_batch, read_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import PRODUCE

HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000


def read(log: LogUnderTest, topic: str, **options: str) -> list[str]:
    """The values of a batch read, each task in another process as far as pickling can tell."""
    return [row["value"].decode() for row in rows(log, subscribe=topic, **options)]


def rows(log: LogUnderTest, **options: str) -> list[dict[str, Any]]:
    return [row for piece in tasks(log, **options) for row in run(piece, log, **options)]


def tasks(log: LogUnderTest, **options: str) -> list[bytes]:
    found = source({"kafka.bootstrap.servers": log.bootstrap, **options})
    return [pickle.dumps(partition) for partition in found.reader(found.schema()).partitions()]


def run(piece: bytes, log: LogUnderTest, **options: str) -> list[dict[str, Any]]:
    found = source({"kafka.bootstrap.servers": log.bootstrap, **options})
    reader = pickle.loads(pickle.dumps(found.reader(found.schema())))
    return [row for batch in reader.read(pickle.loads(piece)) for row in batch.to_pylist()]


def test_a_batch_reads_from_the_first_record_to_the_last_that_is_committed(log: LogUnderTest) -> None:
    topic = log.make(2)
    log.put(topic, "a", "b")
    log.put(topic, "c", partition=1)
    with log.transaction(topic, "open"):
        assert read(log, topic) == ["a", "b", "c"]
    assert read(log, topic) == ["a", "b", "open", "c"]


def test_an_empty_topic_has_no_rows(log: LogUnderTest) -> None:
    topic = log.make(3)
    assert read(log, topic) == []
    # If there is no partition, PySpark makes this one.
    assert run(pickle.dumps(InputPartition(None)), log, subscribe=topic) == []


def test_a_batch_is_bounded_by_offsets(log: LogUnderTest) -> None:
    topic = log.make(2)
    for partition in (0, 1):
        log.put(topic, *(f"{partition}-{number}" for number in range(5)), partition=partition)
    starts, ends = json.dumps({topic: {"0": 1, "1": -2}}), json.dumps({topic: {"0": 3, "1": -1}})
    expected = ["0-1", "0-2", *(f"1-{number}" for number in range(5))]
    assert read(log, topic, startingOffsets=starts, endingOffsets=ends) == expected


def test_a_batch_is_bounded_by_times(log: LogUnderTest) -> None:
    topic = log.make()
    for hour in range(5):
        log.put(topic, str(hour), timestamp=FIRST_MS + hour * HOUR_MS)
    start, end = str(FIRST_MS + HOUR_MS), str(FIRST_MS + 3 * HOUR_MS)
    assert read(log, topic, startingTimestamp=start, endingTimestamp=end) == ["1", "2"]
    assert read(log, topic, startingTimestamp=start, endingTimestamp=str(FIRST_MS * 2)) == ["1", "2", "3", "4"]
    by_partition = json.dumps({topic: {"0": int(end)}})
    assert read(log, topic, endingOffsetsByTimestamp=by_partition) == ["0", "1", "2"]


def test_an_offset_behind_the_end_is_refused_and_not_waited_for(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a")
    with pytest.raises(OptionRefused, match=f"{topic}-0 ends at offset 1, and the options name offset 9"):
        tasks(log, subscribe=topic, endingOffsets=json.dumps({topic: {"0": 9}}))


def test_a_batch_that_begins_behind_the_last_stable_offset_is_empty(log: LogUnderTest) -> None:
    """Whether what is there will be committed nobody knows, and a batch does not wait for it."""
    topic = log.make()
    with log.transaction(topic, *"abc"):
        assert read(log, topic, startingOffsets=json.dumps({topic: {"0": 2}})) == []
        with pytest.raises(OptionRefused, match=f"{topic}-0 ends at offset 0 for committed records"):
            tasks(log, subscribe=topic, endingOffsets=json.dumps({topic: {"0": 2}}))


def test_a_topic_that_is_not_there_is_named(log: LogUnderTest) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic source-nowhere"):
        tasks(log, subscribe="source-nowhere")


def test_offsets_that_are_gone_are_a_loss(log: LogUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    topic = log.make()
    log.put(topic, *"abcd")
    log.delete_records(topic, before=3)
    starts = json.dumps({topic: {"0": 1}})
    assert read(log, topic) == ["d"]
    with pytest.raises(DataLoss, match=f"{topic}-0 begins at offset 3 now"):
        read(log, topic, startingOffsets=starts)
    assert read(log, topic, startingOffsets=starts, failOnDataLoss="false") == ["d"]
    assert "2 offsets were deleted or expired" in caplog.text


def test_a_topic_made_anew_while_it_is_read_is_a_loss(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a")
    planned = tasks(log, subscribe=topic)
    log.make_anew(topic)
    log.put(topic, "x")
    with pytest.raises(DataLoss, match="created again"):
        run(planned[0], log, subscribe=topic)


def test_a_batch_is_cut_into_as_many_tasks_as_asked_for(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, *map(str, range(10)))
    assert len(tasks(log, subscribe=topic, minPartitions="4")) == 4
    assert len(tasks(log, subscribe=topic, maxRecordsPerPartition="4")) == 3
    assert read(log, topic, minPartitions="4") == [str(number) for number in range(10)]


def test_headers_and_producers_are_there_if_asked_for(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a", headers=[("trace", b"1"), ("empty", None)])
    log.put(topic, "b")
    first, second = rows(log, subscribe=topic, includeHeaders="true", includeProducer="true")
    assert first["headers"] == [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}]
    assert not second["headers"]
    assert second["producer_id"] == first["producer_id"] >= 0
    assert (first["producer_epoch"], first["sequence"], second["sequence"]) == (0, 0, 1)


def test_what_only_limits_a_stream_is_said_to_change_nothing(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.make()
    log.put(topic, "a")
    assert read(log, topic, maxOffsetsPerTrigger="1") == ["a"]
    assert "option maxOffsetsPerTrigger is for streams and changes nothing in a batch" in caplog.text


def test_a_batch_that_cannot_be_read_ends_a_query_or_is_told_and_passed_over(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    if FOREIGN_CLUSTER:
        pytest.skip("Apache Kafka opens what is compressed, and refuses it")
    topic = log.make(1)
    log.put(topic, "a")
    bad = close_batch(read_header(encode_batch([Record(b"v")] * 3, codec="gzip")), b"\x1f\x8bthis is no gzip")
    with Asker(log.bootstrap) as ask:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(bad)}]}]
        ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    log.put(topic, "b")
    where = f"partition {topic}-0: the batch at offsets 1 to 3 cannot be read: "
    with pytest.raises(CorruptRecords, match=f"^{where}.*Set onBadBatch=quarantine to go on after it"):
        read(log, topic)
    assert read(log, topic, onBadBatch="quarantine") == ["a", "b"]
    assert where in caplog.text
    with pytest.raises(OptionRefused, match="option onBadBatch: 'skip' is not fail or quarantine"):
        read(log, topic, onBadBatch="skip")
