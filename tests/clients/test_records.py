"""What a client produces, every client gets back: byte for byte, in order, once, at dense offsets."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from client_contract import MESSAGE_TOO_LARGE, Client, ClientError, Record, Stored, settled
from client_kinds import CLIENTS

MEGABYTE = 1_000_000
FIRST_MS = 1_700_000_000_000

RECORDS = [
    Record(b"plain"),
    Record(b"with a key", b"key"),
    Record(b"", b""),
    Record(None, b"tombstone"),
    Record(bytes(range(256)), bytes(reversed(range(256)))),
    Record("grüße".encode(), "schlüssel".encode(), (("ключ", "значение".encode()),)),
    Record(b"headers", None, (("same", b"1"), ("same", b"2"), ("empty", b""))),
    Record(b"long ago", None, (), 1),
    Record(b"later", None, (), FIRST_MS + 123),
    Record(b"a" * 100_000, b"compresses well"),
    Record(random.Random(1).randbytes(50_000), b"does not compress"),
]


def as_stored(records: list[Record], partition: int = 0, first: int = 0) -> list[Stored]:
    return [Stored(partition, first + position, record) for position, record in enumerate(records)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(client: Client, topic: str, codec: str) -> None:
    assert codec in client.codecs
    client.create_topic(topic)
    with client.producer(codec=codec, linger_ms=50) as producer:
        assert producer.send(topic, 0, RECORDS) == list(range(len(RECORDS)))
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert consumer.read(len(RECORDS)) == as_stored(RECORDS)


def test_a_header_without_a_value_comes_back_without_one(client: Client, topic: str) -> None:
    if not client.sends_null_headers:
        pytest.skip(f"{client.name} cannot send one")
    client.create_topic(topic)
    records = [Record(b"headers", headers=(("null", None), ("empty", b"")))]
    with client.producer() as producer:
        producer.send(topic, 0, records)
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert consumer.read(1) == as_stored(records)


def test_a_record_of_a_megabyte_comes_back_whole(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": str(2 * MEGABYTE)})
    records = [Record(random.Random(seed).randbytes(MEGABYTE)) for seed in range(3)]
    with client.producer(request_bytes_max=2 * MEGABYTE) as producer:
        assert producer.send(topic, 0, records) == [0, 1, 2]
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert consumer.read(3) == as_stored(records)


def test_a_record_that_is_too_large_is_refused_and_nothing_of_it_is_written(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "2000"})
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"before")])
        with pytest.raises(ClientError) as refused:
            producer.send(topic, 0, [Record(bytes(10_000))])
        assert refused.value.code == MESSAGE_TOO_LARGE
    # A producer of its own: after the refusal, some of the libraries count the number as used and end in a gap.
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"after")])
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert consumer.read(2) == as_stored([Record(b"before"), Record(b"after")])
    assert client.latest(topic, 0) == 2


def test_many_partitions_keep_their_own_offsets(client: Client, topic: str) -> None:
    partitions = 40
    client.create_topic(topic, partitions)
    records = {
        partition: [Record(b"%d in %d" % (number, partition)) for number in range(5)] for partition in range(partitions)
    }
    with client.producer() as producer:
        for partition, sent in records.items():
            assert producer.send(topic, partition, sent) == [0, 1, 2, 3, 4]
    with client.consumer(topic, dict.fromkeys(records, "earliest")) as consumer:
        read = consumer.read(5 * partitions)
    for partition, sent in records.items():
        assert [stored for stored in read if stored.partition == partition] == as_stored(sent, partition)


def test_producers_at_the_same_time_lose_nothing_and_keep_their_own_order(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = [[Record(b"%d of producer %d" % (number, name)) for number in range(200)] for name in range(4)]

    def produce(sent: list[Record]) -> list[int]:
        with client.producer(linger_ms=1) as producer:
            return producer.send(topic, 0, sent)

    with ThreadPoolExecutor(len(records)) as threads:
        offsets = list(threads.map(produce, records))
    assert sorted(offset for each in offsets for offset in each) == list(range(800))
    with client.consumer(topic, {0: "earliest"}) as consumer:
        read = {stored.offset: stored.record for stored in consumer.read(800)}
    for each, sent in zip(offsets, records, strict=True):
        assert each == sorted(each)
        assert [read[offset] for offset in each] == sent


def test_a_consumer_that_waits_at_the_end_is_woken(client: Client, topic: str) -> None:
    """The consumer lets the broker wait for longer than the test does: only being woken makes it return."""
    client.create_topic(topic)
    with client.consumer(topic, {0: "latest"}, fetch_wait_ms=60_000) as consumer, client.producer() as producer:
        assert consumer.read(1, seconds_max=0.5) == []
        woken: list[Stored] = []
        reader = threading.Thread(target=lambda: woken.extend(consumer.read(1)))
        reader.start()
        producer.send(topic, 0, [Record(b"wake up")])
        reader.join()
        assert woken == as_stored([Record(b"wake up")])


def test_a_consumer_starts_in_the_middle_of_a_batch_and_goes_back(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = [Record(b"%d" % number) for number in range(20)]
    with client.producer(linger_ms=50) as producer:
        producer.send(topic, 0, records)
    with client.consumer(topic, {0: 13}) as consumer:
        assert consumer.read(7) == as_stored(records)[13:]
        consumer.seek(topic, 0, 4)
        assert consumer.read(3) == as_stored(records)[4:7]


def test_a_consumer_that_asks_beyond_the_end_is_sent_to_the_earliest_record(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"only")])
    with client.consumer(topic, {0: 1000}) as consumer:
        assert consumer.read(1) == as_stored([Record(b"only")])


def test_offsets_are_found_by_time(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = [Record(b"%d" % number, timestamp_ms=FIRST_MS + 1000 * number) for number in range(5)]
    with client.producer(linger_ms=50) as producer:
        producer.send(topic, 0, records[:3])
        producer.send(topic, 0, records[3:])
    found = {offset_ms: client.offset_at(topic, 0, FIRST_MS + offset_ms) for offset_ms in (-1, 0, 1, 2000, 2001, 4000)}
    assert found == {-1: 0, 0: 0, 1: 1, 2000: 2, 2001: 3, 4000: 4}
    assert client.offset_at(topic, 0, FIRST_MS + 4001) is None


def test_the_ends_of_a_partition_are_told(client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert (client.earliest(topic, 0), client.latest(topic, 0)) == (0, 0)
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"one"), Record(b"two")])
    assert (client.earliest(topic, 0), client.latest(topic, 0)) == (0, 2)


def test_a_topic_that_says_so_gets_the_time_of_its_append(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"long ago", timestamp_ms=1)])
    with client.consumer(topic, {0: "earliest"}) as consumer:
        (stored,) = consumer.read(1)
    assert stored.record.timestamp_ms > FIRST_MS


def test_producing_to_a_topic_that_is_not_there_makes_it(client: Client, topic: str) -> None:
    with client.producer() as producer:
        assert producer.send(topic, 0, [Record(b"first")]) == [0]
    assert settled(lambda: sorted(client.partitions_of(topic)), [0]) == [0]
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert consumer.read(1) == as_stored([Record(b"first")])


def test_what_one_client_writes_every_other_reads(bootstrap: str, topic: str) -> None:
    records: list[Record] = []
    for number, kind in enumerate(CLIENTS.values()):
        with kind(bootstrap) as client:
            for codec in client.codecs:
                sent = [Record(record.value, record.key, record.headers, FIRST_MS + number) for record in RECORDS]
                with client.producer(codec=codec, linger_ms=50) as producer:
                    producer.send(topic, 0, sent)
                records += sent
    for kind in CLIENTS.values():
        with kind(bootstrap) as client, client.consumer(topic, {0: "earliest"}) as consumer:
            assert consumer.read(len(records)) == as_stored(records)
