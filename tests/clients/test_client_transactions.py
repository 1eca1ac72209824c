"""What a client writes in a transaction is there as a whole or not at all, with the offsets of its group, and whoever
was replaced writes no more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from client_contract import (
    INVALID_PRODUCER_EPOCH,
    PRODUCER_FENCED,
    Client,
    ClientError,
    Producer,
    Record,
    eventually,
    settled,
)
from test_records import as_stored

from semel.testing.served import ServedBroker

Serve = Callable[..., ServedBroker]


def numbered(count: int, of: bytes) -> list[Record]:
    return [Record(b"%s %d" % (of, number)) for number in range(count)]


def values_of(client: Client, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    """What a reader of committed records sees."""
    with client.consumer(topic, {partition: "earliest"}, isolation="read_committed") as consumer:
        return [stored.record.value for stored in consumer.read(count)]


def close_fenced(zombie: Producer) -> None:
    """Some libraries say once more, as they close, that they were fenced."""
    with suppress(ClientError):
        zombie.close()


def test_a_committed_transaction_is_read_in_all_its_partitions(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    with client.producer(transactional_id=topic) as producer:
        producer.begin()
        for partition in range(3):
            producer.send(topic, partition, numbered(5, b"committed"))
        producer.commit()
    for partition in range(3):
        with client.consumer(topic, {partition: "earliest"}, isolation="read_committed") as consumer:
            assert consumer.read(5) == as_stored(numbered(5, b"committed"), partition)


def test_an_aborted_transaction_is_read_by_those_alone_who_do_not_mind(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer(transactional_id=topic) as producer:
        for of, end in ((b"first", producer.commit), (b"aborted", producer.abort), (b"last", producer.commit)):
            producer.begin()
            producer.send(topic, 0, numbered(3, of))
            end()
    with client.consumer(topic, {0: "earliest"}, isolation="read_committed") as consumer:
        # Every end of a transaction takes one offset.
        assert consumer.read(6) == [
            *as_stored(numbered(3, b"first")),
            *as_stored(numbered(3, b"last"), first=8),
        ]
    with client.consumer(topic, {0: "earliest"}) as consumer:
        read = [stored.record for stored in consumer.read(9)]
        assert read == [record for of in (b"first", b"aborted", b"last") for record in numbered(3, of)]


def test_an_open_transaction_holds_back_what_comes_behind_it(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with (
        client.producer(transactional_id=topic) as producer,
        client.producer() as another,
        client.consumer(topic, {0: "earliest"}, isolation="read_committed") as careful,
        client.consumer(topic, {0: "earliest"}) as careless,
    ):
        producer.begin()
        producer.send(topic, 0, [Record(b"in the transaction")])
        another.send(topic, 0, [Record(b"outside")])
        both = as_stored([Record(b"in the transaction"), Record(b"outside")])
        assert careless.read(2) == both
        assert careful.read(1, seconds_max=0.5) == []
        producer.commit()
        assert careful.read(2) == both


def test_a_transaction_may_be_empty(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer(transactional_id=topic) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            end()
        producer.begin()
        producer.send(topic, 0, [Record(b"after")])
        producer.commit()
    assert values_of(client, topic, 1) == [b"after"]


def test_a_zombie_is_fenced_by_its_successor(client: Client, topic: str) -> None:
    client.create_topic(topic)
    zombie = client.producer(transactional_id=topic)
    zombie.begin()
    zombie.send(topic, 0, [Record(b"of the zombie")])
    with client.producer(transactional_id=topic) as successor:
        successor.begin()
        successor.send(topic, 0, [Record(b"of the successor")])
        with pytest.raises(ClientError) as refused:
            zombie.commit()
        assert refused.value.code in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
        successor.commit()
        successor.begin()
        successor.send(topic, 0, [Record(b"again")])
        successor.commit()
    close_fenced(zombie)
    assert values_of(client, topic, 2) == [b"of the successor", b"again"]


def test_a_zombie_cannot_write(client: Client, topic: str) -> None:
    client.create_topic(topic)
    zombie = client.producer(transactional_id=topic)
    zombie.begin()
    zombie.send(topic, 0, [Record(b"of the zombie")])
    with client.producer(transactional_id=topic) as successor:
        with pytest.raises(ClientError) as refused:
            zombie.send(topic, 0, [Record(b"too late")])
        assert refused.value.code in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
        successor.begin()
        successor.send(topic, 0, [Record(b"of the successor")])
        successor.commit()
    close_fenced(zombie)
    assert values_of(client, topic, 1) == [b"of the successor"]
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert [stored.record.value for stored in consumer.read(2)] == [b"of the zombie", b"of the successor"]


def test_offsets_are_committed_with_the_transaction_and_not_without_it(client: Client, topic: str) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    client.create_topic(source)
    client.create_topic(target)
    with client.producer() as producer:
        producer.send(source, 0, numbered(10, b"input"))
    with client.member(topic, [source]) as member, client.producer(transactional_id=topic) as producer:
        assert eventually(lambda: member.poll(0.1) != [])
        producer.begin()
        producer.send(target, 0, [Record(b"aborted")])
        producer.send_offsets(member, {(source, 0): 7})
        producer.abort()
        assert member.committed((source, 0)) is None
        producer.begin()
        producer.send(target, 0, [Record(b"committed")])
        producer.send_offsets(member, {(source, 0): 4})
        producer.commit()
        assert settled(lambda: member.committed((source, 0)), 4) == 4
    assert values_of(client, target, 1) == [b"committed"]


@pytest.mark.parametrize("end", [ServedBroker.stop, ServedBroker.kill], ids=["stopped", "killed"])
def test_a_transaction_goes_on_after_a_restart_of_the_broker(
    kind_of_client: type[Client], serve: Serve, topic: str, end: Callable[[ServedBroker], None]
) -> None:
    broker = serve()
    with kind_of_client(broker.bootstrap) as client:
        client.create_topic(topic)
        with client.producer(transactional_id=topic) as producer:
            producer.begin()
            producer.send(topic, 0, numbered(3, b"before"))
            producer.commit()
            producer.begin()
            producer.send(topic, 0, numbered(3, b"during"))
            end(broker)
            broker.start()
            producer.send(topic, 0, numbered(3, b"after"))
            producer.commit()
        wanted = [record.value for of in (b"before", b"during", b"after") for record in numbered(3, of)]
        assert values_of(client, topic, 9) == wanted


def test_a_producer_that_comes_back_after_a_kill_aborts_what_it_had_begun(
    kind_of_client: type[Client], serve: Serve, topic: str
) -> None:
    broker = serve()
    with kind_of_client(broker.bootstrap) as client:
        client.create_topic(topic)
        zombie = client.producer(transactional_id=topic)
        zombie.begin()
        zombie.send(topic, 0, [Record(b"never ended")])
        broker.kill()
        broker.start()
        with client.producer(transactional_id=topic) as successor:
            successor.begin()
            successor.send(topic, 0, [Record(b"committed")])
            successor.commit()
        with pytest.raises(ClientError) as refused:
            zombie.commit()
        assert refused.value.code in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
        close_fenced(zombie)
        assert values_of(client, topic, 1) == [b"committed"]
