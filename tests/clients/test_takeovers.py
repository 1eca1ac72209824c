"""Clients that know both brokers of a pair go on by themselves when one takes over from the other, and nothing is lost
or doubled."""

from __future__ import annotations

import threading
from typing import Literal

import pytest
from client_contract import Client, Record, Stored
from confluent_kafka import Consumer, Producer, TopicPartition
from test_records import as_stored

from asking import Asker
from cluster_under_test import FOREIGN_CLUSTER
from semel.testing.pair import BrokerPair
from semel.wire.versions import METADATA

BATCH_RECORDS = 20
BATCHES = 60
TRANSACTIONS = 12
HOWS: tuple[Literal["kill", "stop"], ...] = ("kill", "stop")


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> BrokerPair:
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs brokers of its own")
    pair: BrokerPair = request.getfixturevalue("semel_pair")
    return pair


def test_an_idempotent_producer_and_a_consumer_go_on_over_takeovers(
    kind_of_client: type[Client], pair: BrokerPair, topic: str
) -> None:
    """The first one with the disk of the broker that was active, the second one a clean stop."""
    records = [Record(b"%d" % number) for number in range(BATCHES * BATCH_RECORDS)]
    with kind_of_client(pair.bootstrap) as client:
        client.create_topic(topic)
        with client.producer() as producer, client.consumer(topic, {0: "earliest"}) as consumer:
            acknowledged: list[int] = []
            read: list[Stored] = []
            thirds = [threading.Event(), threading.Event()]

            def produce() -> None:
                for first in range(0, len(records), BATCH_RECORDS):
                    acknowledged.extend(producer.send(topic, 0, records[first : first + BATCH_RECORDS]))
                    for number, third in enumerate(thirds, start=1):
                        if first >= number * len(records) // 3:
                            third.set()

            sender = threading.Thread(target=produce)
            sender.start()
            for third, how in zip(thirds, HOWS, strict=True):
                assert third.wait(60)
                read += consumer.read(len(records) // 6)
                pair.take_over(how)
            sender.join()
            read += consumer.read(len(records) - len(read))
            assert acknowledged == list(range(len(records)))
            assert read == as_stored(records)
    assert [record.value for record in pair.active.log(topic)] == [record.value for record in records]


def test_transactions_in_which_another_broker_takes_over_are_there_as_a_whole(
    kind_of_client: type[Client], pair: BrokerPair, topic: str
) -> None:
    """Whatever was sent before the takeover, and whatever comes behind it."""
    expected: list[bytes | None] = []
    with kind_of_client(pair.bootstrap) as client:
        client.create_topic(topic)
        with client.producer(transactional_id=topic) as producer:
            for number in range(TRANSACTIONS):
                producer.begin()
                records = [Record(b"%d.%d" % (number, part)) for part in range(4)]
                producer.send(topic, 0, records[:2])
                if number % 4 == 2:
                    pair.take_over(HOWS[number // 4 % 2])
                producer.send(topic, 0, records[2:])
                if number % 4 == 3:
                    producer.abort()
                else:
                    producer.commit()
                    expected += [record.value for record in records]
        with client.consumer(topic, {0: "earliest"}, isolation="read_committed") as consumer:
            assert [stored.record.value for stored in consumer.read(len(expected))] == expected
    assert [record.value for record in pair.active.log(topic, committed_only=True)] == expected


@pytest.mark.parametrize("takeovers", [1, 3])
def test_a_worker_that_knew_an_earlier_broker_as_the_coordinator_of_its_group_commits_its_offsets(
    pair: BrokerPair, topic: str, takeovers: int
) -> None:
    """librdkafka keeps a group's coordinator by its id, and waits for ever for one that Metadata names no more."""
    shared = {"bootstrap.servers": pair.bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
    producer = Producer({**shared, "transactional.id": topic})
    consumer = Consumer({**shared, "group.id": topic})
    producer.init_transactions(60)
    for number in range(2):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        place = TopicPartition(topic, 0, number)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        for _ in range(0 if number else takeovers):
            pair.take_over("kill")
    assert [place.offset for place in consumer.committed([TopicPartition(topic, 0)], 60)] == [1]
    consumer.close()


def test_each_id_that_a_client_may_have_heard_leads_to_the_active_broker(pair: BrokerPair) -> None:
    for epoch in range(1, 4):
        host, _, port = pair.active.bootstrap.rpartition(":")
        for broker in (pair.active, pair.standby):
            with Asker(broker.bootstrap) as ask:
                found = ask(
                    METADATA, 12, topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
                ).brokers
            assert {one.node_id: (one.host, one.port) for one in found} == {
                number: (host, int(port)) for number in range(1, epoch + 1)
            }
        pair.take_over("stop")
