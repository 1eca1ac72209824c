"""Clients that know both brokers of a pair go on by themselves when one takes over from the other, and nothing is lost
or doubled."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from client_contract import Client, Record, Stored
from client_kinds import CLIENTS
from confluent_client import ConfluentClient
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from test_records import as_stored

from asking import Asker
from cluster_under_test import FOREIGN_CLUSTER
from eventually import eventually
from semel.log.broker.role import STANDBY_IDS
from semel.testing.pair import BrokerPair
from semel.wire.errors import ErrorCode
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


# Where there are access rules, as where clients log in, a standby forwards nothing: it answers by itself, or hangs up.
STANDBYS: dict[str, dict[str, Any]] = {
    "forwarding": {},
    "strict": {"access_rules": True, "super_users": ["User:ANONYMOUS"], "insecure": True},
}


@pytest.fixture(params=["forwarding", pytest.param("strict", marks=pytest.mark.slow)])
def lone_pair(request: pytest.FixtureRequest) -> Iterator[BrokerPair]:
    """One on which no broker has taken over yet."""
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs brokers of its own")
    with BrokerPair(**STANDBYS[request.param]) as pair:
        yield pair


def metadata_at(bootstrap: str, *topics: str) -> Any:
    named = [{"topic_id": b"\0" * 16, "name": topic} for topic in topics]
    with Asker(bootstrap) as ask:
        return ask(
            METADATA, 12, topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )


def brokers_at(bootstrap: str) -> dict[int, str]:
    """The brokers that one of them names, by their ids."""
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata_at(bootstrap).brokers}


def is_known_at(bootstrap: str, topic: str) -> bool:
    return metadata_at(bootstrap, topic).topics[0].error_code == ErrorCode.NONE


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

    def has_committed() -> bool:
        try:
            return [place.offset for place in consumer.committed([TopicPartition(topic, 0)], 60)] == [1]
        except KafkaException as error:
            # The old coordinator is back, and stands by. librdkafka looks for the new one and does not ask again.
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False

    assert eventually(has_committed)
    consumer.close()


class Rebootstrapping(ConfluentClient):
    """librdkafka as it is by default."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._settings["metadata.recovery.strategy"] = "rebootstrap"


@pytest.mark.parametrize("kind_of_client", [*CLIENTS.values(), Rebootstrapping], ids=[*CLIENTS, "rebootstrapping"])
@pytest.mark.parametrize("how", HOWS)
def test_clients_go_on_while_each_broker_that_was_lost_stays_away(
    kind_of_client: type[Client], lone_pair: BrokerPair, topic: str, how: Literal["kill", "stop"]
) -> None:
    """Most clients forget their bootstrap servers, and try only what Metadata has named. The second broker that takes
    over was not there when the clients began."""
    pair = lone_pair
    with kind_of_client(pair.bootstrap) as client, contextlib.ExitStack() as open_clients:
        client.create_topic(topic)
        # Until the standby has read of it, librdkafka may say that the topic to which it subscribes is not there.
        assert eventually(lambda: is_known_at(pair.standby.bootstrap, topic))
        producer = open_clients.enter_context(client.producer())
        transactional = open_clients.enter_context(client.producer(transactional_id=topic))
        consumer = open_clients.enter_context(client.consumer(topic, {0: "earliest"}))
        member = open_clients.enter_context(client.member(topic, [topic]))
        for number in range(3):
            producer.send(topic, 0, [Record(b"alone %d" % number)])
            transactional.begin()
            transactional.send(topic, 0, [Record(b"in a transaction %d" % number)])
            transactional.commit()
            expected = [b"alone %d" % number, b"in a transaction %d" % number]
            assert [stored.record.value for stored in consumer.read(2)] == expected
            found: list[Stored] = []
            assert eventually(lambda found=found: len(found.extend(member.poll(0.1)) or found) >= 2)  # type: ignore[func-returns-value]
            assert [stored.record.value for stored in found] == expected
            member.commit({(topic, 0): found[-1].offset + 1})
            if number < 2:
                pair.take_over(how, comes_back=False)
                if kind_of_client.name == "kafka-python":
                    # Its producer (3.0.12) loses the request for which it finds the coordinator's machine gone.
                    fresh = open_clients.enter_context(kind_of_client(pair.active.bootstrap))
                    transactional = open_clients.enter_context(fresh.producer(transactional_id=topic))
            if number == 0:
                pair.join()
                # Meanwhile every client asks for Metadata, once a second.
                assert consumer.read(1, seconds_max=1.5) == member.poll(1.5) == []
    assert len(pair.active.log(topic, committed_only=True)) == 6


def test_the_ids_that_a_client_may_have_heard_lead_to_both_brokers_in_turn(lone_pair: BrokerPair) -> None:
    """A client that loses a broker tries the ids one after the other, so about half of them lead to the other one. The
    newest, which most clients have kept, leads to the active broker."""
    pair = lone_pair
    for epoch in range(1, 6):
        for broker in (pair.active, pair.standby):
            found = brokers_at(broker.bootstrap)
            assert sorted(node_id for node_id in found if node_id < STANDBY_IDS) == list(range(1, epoch + 1))
            assert found[epoch] == found[max(epoch - 1, 1)] == pair.active.bootstrap
            places = Counter(found.values())
            assert places.keys() == {pair.active.bootstrap, pair.standby.bootstrap}
            assert abs(places[pair.active.bootstrap] - places[pair.standby.bootstrap]) <= 1
        pair.take_over("stop")


def test_every_id_that_a_client_may_have_heard_leads_to_a_broker_that_is_alone(pair: BrokerPair) -> None:
    for _ in range(2):
        pair.take_over("stop")
    pair.take_over("stop", comes_back=False)
    assert brokers_at(pair.active.bootstrap) == dict.fromkeys(range(1, 5), pair.active.bootstrap)
