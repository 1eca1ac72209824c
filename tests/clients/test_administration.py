"""Every client administers topics: makes, describes, changes and deletes them, and is told what is wrong."""

from __future__ import annotations

import pytest
from client_contract import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_TOPIC_EXCEPTION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Client,
    ClientError,
    Record,
    settled,
)

PARTITIONS_OF_A_LARGE_TOPIC = 100


def code_of(refused: pytest.ExceptionInfo[ClientError]) -> int:
    return refused.value.code


def test_a_topic_is_there_from_its_creation_to_its_deletion(client: Client, topic: str) -> None:
    assert topic not in client.topics()
    client.create_topic(topic, partitions=3)
    assert settled(lambda: topic in client.topics(), True)
    client.delete_topic(topic)
    assert not settled(lambda: topic in client.topics(), False)


def test_every_partition_of_a_large_topic_has_a_leader(client: Client, topic: str) -> None:
    client.create_topic(topic, PARTITIONS_OF_A_LARGE_TOPIC)
    wanted = list(range(PARTITIONS_OF_A_LARGE_TOPIC))
    assert settled(lambda: sorted(client.partitions_of(topic)), wanted) == wanted
    assert all(leader >= 0 for leader in client.partitions_of(topic).values())


def test_a_topic_is_made_once(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic)
    assert code_of(refused) == TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["..", "a/b", "a" * 250])
def test_a_name_that_no_topic_may_have_is_refused(client: Client, name: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.create_topic(name)
    assert code_of(refused) == INVALID_TOPIC_EXCEPTION


def test_a_topic_that_is_not_there_cannot_be_deleted(client: Client, topic: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.delete_topic(topic)
    assert code_of(refused) == UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_are_added_and_never_taken_away(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    client.create_partitions(topic, 5)
    assert settled(lambda: sorted(client.partitions_of(topic)), [0, 1, 2, 3, 4]) == [0, 1, 2, 3, 4]
    with pytest.raises(ClientError) as refused:
        client.create_partitions(topic, 4)
    assert code_of(refused) == INVALID_PARTITIONS


def test_a_configuration_holds_from_creation_until_it_is_changed(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "123456789"})
    assert settled(lambda: client.config(topic, "retention.ms"), "123456789") == "123456789"
    client.set_config(topic, "retention.ms", "987654321")
    assert settled(lambda: client.config(topic, "retention.ms"), "987654321") == "987654321"


def test_a_configuration_that_does_not_exist_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(ClientError) as refused_at_creation:
        client.create_topic(topic, configs={"no.such.thing": "1"})
    assert code_of(refused_at_creation) == INVALID_CONFIG
    assert topic not in client.topics()
    client.create_topic(topic)
    with pytest.raises(ClientError) as refused_later:
        client.set_config(topic, "no.such.thing", "1")
    assert code_of(refused_later) == INVALID_CONFIG


def test_deleted_records_are_gone_and_the_others_keep_their_offsets(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"%d" % number) for number in range(10)])
    assert client.delete_records(topic, 0, 6) == 6
    assert (client.earliest(topic, 0), client.latest(topic, 0)) == (6, 10)
    with client.consumer(topic, {0: "earliest"}) as consumer:
        assert [(stored.offset, stored.record.value) for stored in consumer.read(4)] == [
            (offset, b"%d" % offset) for offset in range(6, 10)
        ]
