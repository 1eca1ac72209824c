"""A topic that is deleted and made again under the same name is another topic, and clients that were at the old one
find their way into the new one."""

from __future__ import annotations

import pytest
from client_contract import Client, Record
from test_records import as_stored

from cluster_under_test import FOREIGN_CLUSTER


def test_a_producer_goes_on_in_the_new_topic(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"old %d" % number) for number in range(5)])
        client.delete_topic(topic)
        client.create_topic(topic)
        assert producer.send(topic, 0, [Record(b"new 0")]) == [0]
        assert producer.send(topic, 0, [Record(b"new 1")]) == [1]
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert consumer.read(2) == as_stored([Record(b"new 0"), Record(b"new 1")])


def test_a_consumer_reads_the_new_topic_from_its_start(client: Client, topic: str) -> None:
    if FOREIGN_CLUSTER is not None and not client.reads_on_in_a_topic_made_anew_on_kafka:
        pytest.skip(f"{client.name} does not on Apache Kafka")
    client.create_topic(topic)
    new = [Record(b"new %d" % number) for number in range(3)]
    with client.producer() as producer, client.consumer(topic, {0: "earliest"}) as consumer:
        producer.send(topic, 0, [Record(b"old %d" % number) for number in range(5)])
        assert len(consumer.read(5)) == 5
        client.delete_topic(topic)
        client.create_topic(topic)
        with client.producer() as another:
            another.send(topic, 0, new)
        assert consumer.read(3) == as_stored(new)
