"""What looking at a lane's marker promises to those who have fenced nobody: they are not held up by a dead writer,
and they see what was committed before they came."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from confluent_kafka import Producer
from log_under_test import LogUnderTest

from semel.client import LogClient, connection, from_options, transactional_ids
from semel.client.cluster import Cluster
from semel.client.settings import Address
from semel.spark.lanes import progress
from semel.spark.lanes.protocol import Digest, Marker, Order, Written
from semel.wire.versions import DESCRIBE_TRANSACTIONS

SECONDS_MAX = 120


def marker(batch_id: int) -> Marker:
    return Marker("enriched", 0, 1, Order.CONSECUTIVE, (Written("query", batch_id, Digest(10, 17)),))


def writer_of_an_open_marker(log: LogUnderTest, topic: str, transactional_id: str) -> Producer:
    """A producer that has written a marker and not ended its transaction; the caller keeps it."""
    writer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": transactional_id})
    writer.init_transactions(SECONDS_MAX)
    writer.begin_transaction()
    writer.produce(topic, progress.encode(marker(0)), partition=0)
    assert writer.flush(SECONDS_MAX) == 0
    return writer


def test_what_a_dead_writer_left_open_does_not_hold_up_its_successor(log: LogUnderTest) -> None:
    name = log.make()
    writer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": log.new_name("lane")})
    writer.init_transactions(SECONDS_MAX)
    for batch_id in (0, 1):
        writer.begin_transaction()
        writer.produce(name, progress.encode(marker(batch_id)), partition=0)
        assert writer.flush(SECONDS_MAX) == 0
        if batch_id == 0:
            writer.commit_transaction(SECONDS_MAX)
    # Batch 1 is written and never committed; whoever waited for that would wait until the transaction is too old.
    options = {"kafka.bootstrap.servers": log.bootstrap, "kafka.default.api.timeout.ms": "20000"}
    with LogClient(from_options(options)) as client:
        topic = client.topics([name])[name]
        assert progress.peek_marker(client, topic, 0, "enriched") == marker(0)


def test_a_commit_that_was_told_and_is_still_being_written_is_waited_for(
    log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka tells a writer of its commit before the partitions know of it; a look in between, which the
    broker's description here stands for, must not take the batch for one that is not there."""
    name, lane = log.make(), log.new_name("lane")
    writer = writer_of_an_open_marker(log, name, lane)
    described = transactional_ids.described
    looks = ["committed meanwhile", "still being written", "still being written"]

    def describe(cluster: Cluster, coordinator: Address, names: Iterable[str]) -> list[transactional_ids.Described]:
        found = described(cluster, coordinator, names)
        if not looks:
            return found
        if looks.pop() == "committed meanwhile":
            writer.commit_transaction(SECONDS_MAX)
        return [one._replace(state="PrepareCommit") for one in found]

    monkeypatch.setattr(transactional_ids, "described", describe)
    with LogClient(from_options({"kafka.bootstrap.servers": log.bootstrap})) as client:
        topic = client.topics([name])[name]
        assert progress.peek_marker(client, topic, 0, "enriched") is None
        progress.await_commit(client, topic, 0, lane)
        assert progress.peek_marker(client, topic, 0, "enriched") == marker(0)
    assert looks == []


def test_a_commit_is_not_waited_for_where_the_transaction_is_open(log: LogUnderTest) -> None:
    name, lane = log.make(), log.new_name("lane")
    _writer = writer_of_an_open_marker(log, name, lane)
    options = {"kafka.bootstrap.servers": log.bootstrap, "kafka.default.api.timeout.ms": "20000"}
    with LogClient(from_options(options)) as client:
        topic = client.topics([name])[name]
        progress.await_commit(client, topic, 0, lane)
        assert progress.peek_marker(client, topic, 0, "enriched") is None


def test_a_broker_that_is_too_old_to_describe_transactions_is_not_waited_for(
    log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka can be asked from 3.0 on, and lanes are written into 2.8 as well."""
    name, lane = log.make(), log.new_name("lane")
    _writer = writer_of_an_open_marker(log, name, lane)
    monkeypatch.delitem(connection._SPOKEN, DESCRIBE_TRANSACTIONS)
    with LogClient(from_options({"kafka.bootstrap.servers": log.bootstrap})) as client:
        topic = client.topics([name])[name]
        progress.await_commit(client, topic, 0, lane)
        assert progress.peek_marker(client, topic, 0, "enriched") is None
