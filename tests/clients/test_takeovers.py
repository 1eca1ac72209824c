"""Clients that know both brokers of a pair go on by themselves when one takes over from the other, and nothing is lost
or doubled."""

from __future__ import annotations

import threading
from typing import Literal

import pytest
from client_contract import Client, Record, Stored
from test_records import as_stored

from cluster_under_test import FOREIGN_CLUSTER
from semel.testing.pair import BrokerPair

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
