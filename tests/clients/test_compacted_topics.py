"""A compacted topic has holes, rewritten batches and marks of deletion, and every client reads it to its end."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from client_contract import Client, ClientError, Record

from cluster_under_test import FOREIGN_CLUSTER
from semel.testing.broker import FaultyBroker

UNKNOWN_SERVER_ERROR = -1
INVALID_RECORD = 87
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0",
}


@pytest.fixture
def broker() -> Iterator[FaultyBroker]:
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker that compacts when it is told to")
    with FaultyBroker() as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_left_is_read_from_any_offset_on(
    kind_of_client: type[Client], broker: FaultyBroker, topic: str, codec: str
) -> None:
    with kind_of_client(broker.bootstrap) as client:
        client.create_topic(topic, configs=COMPACTED)
        with client.producer(codec=codec, linger_ms=20) as producer:
            for number in range(12):
                producer.send(
                    topic,
                    0,
                    [
                        Record(b"%d" % number * 50, b"always"),
                        Record(b"%d" % number * 50, b"once %d" % number),
                        Record(None, b"gone")
                        if number == 5
                        else Record(random.Random(number).randbytes(300), b"other"),
                    ],
                )
        before = broker.log(topic)
        broker.compact()
        left = broker.log(topic)
        assert {record.key for record in left} == {record.key for record in before}
        assert len(left) < len(before)
        for start in (0, 1, 4, 17, left[-1].offset):
            expected = [record for record in left if record.offset >= start]
            with client.consumer(topic, {0: start}) as consumer:
                read = consumer.read(len(expected))
            assert [(stored.offset, stored.record.key, stored.record.value) for stored in read] == [
                (record.offset, record.key, record.value) for record in expected
            ]


def test_what_was_aborted_is_gone_and_what_was_committed_is_read(
    kind_of_client: type[Client], broker: FaultyBroker, topic: str
) -> None:
    with kind_of_client(broker.bootstrap) as client:
        client.create_topic(topic, configs={**COMPACTED, "delete.retention.ms": "0"})
        with client.producer(transactional_id=topic) as producer:
            for number in range(8):
                producer.begin()
                producer.send(topic, 0, [Record(b"%d" % number * 100, b"a"), Record(b"v" * 300, b"own %d" % number)])
                if number % 3 == 1:
                    producer.abort()
                else:
                    producer.commit()
        with client.producer() as producer:
            producer.send(topic, 0, [Record(b"last" * 500, b"last")])
        broker.compact()
        with client.consumer(topic, {0: "earliest"}, isolation="read_committed") as consumer:
            read = consumer.read(7)
        values = {stored.record.key: stored.record.value for stored in read}
        assert values == {
            b"a": b"6" * 100,
            **{b"own %d" % number: b"v" * 300 for number in range(8) if number % 3 != 1},
            b"last": b"last" * 500,
        }
        assert len(read) == len(values)


def test_a_record_without_a_key_is_refused(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"cleanup.policy": "compact"})
    with client.producer() as producer:
        with pytest.raises(ClientError) as refused:
            producer.send(topic, 0, [Record(b"no key")])
        # aiokafka does not know this one.
        assert refused.value.code in (INVALID_RECORD, UNKNOWN_SERVER_ERROR)
    with client.producer() as producer:
        assert producer.send(topic, 0, [Record(b"a key", b"key")]) == [0]
