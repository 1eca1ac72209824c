"""Clients outlive their broker: after a stop or a kill they connect again and go on, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from client_contract import Client, ClientError, Record
from test_records import as_stored

from semel.testing.served import ServedBroker

BATCH_RECORDS = 20
BATCHES = 60
Serve = Callable[..., ServedBroker]


@pytest.mark.parametrize("end", [ServedBroker.stop, ServedBroker.kill], ids=["stopped", "killed"])
def test_a_producer_and_a_consumer_go_on_after_a_restart(
    kind_of_client: type[Client], serve: Serve, topic: str, end: Callable[[ServedBroker], None]
) -> None:
    broker = serve()
    records = [Record(b"%d" % number) for number in range(BATCHES * BATCH_RECORDS)]
    with kind_of_client(broker.bootstrap) as client:
        client.create_topic(topic)
        with client.producer() as producer, client.consumer(topic, {0: "earliest"}) as consumer:
            acknowledged: list[int] = []
            third_is_sent = threading.Event()

            def produce() -> None:
                for first in range(0, len(records), BATCH_RECORDS):
                    acknowledged.extend(producer.send(topic, 0, records[first : first + BATCH_RECORDS]))
                    if first >= len(records) // 3:
                        third_is_sent.set()

            sender = threading.Thread(target=produce)
            sender.start()
            assert third_is_sent.wait(30)
            end(broker)
            broker.start()
            read = consumer.read(len(records))
            sender.join()
            assert acknowledged == list(range(len(records)))
            assert read == as_stored(records)
            assert client.latest(topic, 0) == len(records)


def test_what_was_made_before_a_kill_is_there_after_it(kind_of_client: type[Client], serve: Serve, topic: str) -> None:
    broker = serve()
    with kind_of_client(broker.bootstrap) as client:
        client.create_topic(topic, partitions=2, configs={"retention.ms": "123456789"})
        client.create_partitions(topic, 3)
        with client.producer() as producer:
            producer.send(topic, 2, [Record(b"%d" % number) for number in range(5)])
        client.delete_records(topic, 2, 3)
    broker.kill()
    broker.start()
    with kind_of_client(broker.bootstrap) as client:
        assert sorted(client.partitions_of(topic)) == [0, 1, 2]
        assert client.config(topic, "retention.ms") == "123456789"
        assert (client.earliest(topic, 2), client.latest(topic, 2)) == (3, 5)


def test_producing_to_a_topic_that_nobody_makes_fails(kind_of_client: type[Client], serve: Serve, topic: str) -> None:
    """How a client says that it waited for the topic in vain is its own affair."""
    broker = serve("--no-auto-create-topics")
    with kind_of_client(broker.bootstrap) as client:
        with client.producer(patience_ms=2000) as producer, pytest.raises(ClientError):
            producer.send(topic, 0, [Record(b"nowhere")])
        assert client.topics() == set()
