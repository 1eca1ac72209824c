"""What consumers are shown while transactions are open and once they have ended, at either level of isolation."""

import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from test_durable_answers import beside

from asking import READ_COMMITTED, READ_UNCOMMITTED, Asker, at, fetch_fields
from held_syncs import HeldSyncs
from semel.log.broker.apis import APIS
from semel.log.broker.broker import Broker
from semel.log.storage.files import DiskFile
from semel.testing.broker import FaultyBroker
from semel.testing.faulty import FaultyFiles
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, decode_batches, encode_batch
from semel.wire.versions import DELETE_RECORDS, DESCRIBE_PRODUCERS, FETCH, LIST_OFFSETS, PRODUCE
from transacting import TransactionalProducer

LATEST, MAX_TIMESTAMP = -1, -3
TOPIC_IDS_FROM = 13


def fetch(
    ask: Asker, topic: str | UUID, offset: int = 0, *, isolation_level: int = READ_COMMITTED, **options: Any
) -> Any:
    """What one partition gives to who reads committed records, unless it is said otherwise."""
    return ask.fetch(topic, offset, isolation_level=isolation_level, **options)


def aborted(partition: Any) -> list[tuple[int, int]] | None:
    if partition.aborted_transactions is None:
        return None
    return [(found.producer_id, found.first_offset) for found in partition.aborted_transactions]


def offsets(partition: Any) -> list[int]:
    """Where the batches that were given begin."""
    return [batch.base_offset for batch in decode_batches(partition.records or b"")]


def place(ask: Asker, timestamp: int, isolation_level: int) -> int:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    asked = {"replica_id": -1, "isolation_level": isolation_level}
    answer = ask(LIST_OFFSETS, 7, **asked, topics=[{"name": "orders", "partitions": [partition]}])
    return int(answer.topics[0].partitions[0].offset)


def owner(ask: Asker, name: str) -> TransactionalProducer:
    producer = TransactionalProducer(ask, name)
    assert producer.claim() == 0
    return producer


@pytest.mark.parametrize("version", APIS[FETCH].served)
def test_in_every_version_committed_reads_end_where_the_oldest_open_transaction_begins(
    ask: Asker, version: int
) -> None:
    created = ask.create("orders")
    topic = "orders" if version < TOPIC_IDS_FROM else created.topic_id
    one, two = owner(ask, "one"), owner(ask, "two")
    one.send("orders", "aborted", version=12)
    ask.produce("orders", at(1000))
    one.end(committed=False)
    two.send("orders", "open", version=12)
    ask.produce("orders", at(1000))
    everything = fetch(ask, topic, version=version, isolation_level=READ_UNCOMMITTED)
    assert (everything.high_watermark, everything.last_stable_offset) == (5, 3)
    assert offsets(everything) == [0, 1, 2, 3, 4]
    assert aborted(everything) is None
    stable = fetch(ask, topic, version=version)
    assert (stable.high_watermark, stable.last_stable_offset) == (5, 3)
    assert offsets(stable) == [0, 1, 2]
    assert aborted(stable) == [(one.identity[0], 0)]
    two.end()
    assert offsets(fetch(ask, topic, version=version)) == [0, 1, 2, 3, 4, 5]


def test_the_aborted_are_those_that_reach_into_what_is_given_and_no_others(ask: Asker) -> None:
    ask.create("orders")
    one, two = owner(ask, "one"), owner(ask, "two")
    one.send("orders", "a" * 500, version=12)
    ask.produce("orders", [Record(b"b" * 500)])
    one.end(committed=False)
    two.send("orders", "c" * 500, version=12)
    two.end(committed=False)
    inside = fetch(ask, "orders", 1, bytes_max=700)
    assert (offsets(inside), aborted(inside)) == ([1, 2], [(one.identity[0], 0)])
    behind = fetch(ask, "orders", 3)
    assert (offsets(behind), aborted(behind)) == ([3, 4], [(two.identity[0], 3)])
    end = fetch(ask, "orders", 5)
    assert (offsets(end), aborted(end), end.error_code) == ([], [], 0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_fetch_that_waits_is_answered_when_the_transaction_ends_and_not_while_it_grows(
    ask: Asker, semel_broker: FaultyBroker, committed: bool
) -> None:
    ask.create("orders")
    producer = owner(ask, "one")
    producer.send("orders", "first", version=12)
    waiting = Asker(semel_broker.bootstrap)
    fields = fetch_fields("orders", isolation_level=READ_COMMITTED, wait_ms=30_000)
    answer = waiting.ask_later(FETCH, 12, **fields)
    producer.send("orders", "second", version=12)
    assert fetch(ask, "orders", isolation_level=READ_UNCOMMITTED).high_watermark == 2
    assert not waiting.has_answer()
    producer.end(committed=committed)
    assert offsets(answer().responses[0].partitions[0]) == [0, 1, 2]
    waiting.close()


def test_the_end_of_a_transaction_is_shown_to_nobody_before_it_is_durable() -> None:
    syncs = HeldSyncs()

    def client(broker: Broker) -> None:
        ask, other = Asker(broker.bootstrap), Asker(broker.bootstrap)
        ask.create("orders")
        producer = owner(ask, "one")
        producer.send("orders", "value", version=12)
        producer.ask = ending = Asker(broker.bootstrap)
        ended = threading.Thread(target=producer.end)
        with syncs.held():
            ended.start()
            assert syncs.began.wait(30)
            shown = fetch(other, "orders")
            assert (shown.high_watermark, shown.last_stable_offset, offsets(shown)) == (1, 0, [])
        ended.join(30)
        shown = fetch(other, "orders")
        assert (shown.high_watermark, shown.last_stable_offset, offsets(shown)) == (2, 2, [0, 1])
        for asker in (ask, other, ending):
            asker.close()

    beside(Broker(files=FaultyFiles(), disk_threads=syncs), client)


def test_what_comes_from_the_disk_has_the_list_of_the_aborted_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold: list[int] = []

    def is_cached(self: DiskFile, size: int, position: int) -> bool:
        cold.append(position)
        return cold.count(position) > 1

    monkeypatch.setattr(DiskFile, "is_cached", is_cached)
    with FaultyBroker(tmp_path) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders")
        producer = owner(ask, "one")
        producer.send("orders", "value", version=12)
        producer.end(committed=False)
        found = fetch(ask, "orders")
        assert (offsets(found), aborted(found)) == ([0, 1], [(producer.identity[0], 0)])
        ask.close()
    assert cold == [0]


def test_places_and_times_are_looked_for_at_the_level_of_isolation(ask: Asker) -> None:
    ask.create("orders")
    producer = owner(ask, "one")
    ask.produce("orders", at(1000))
    producer.send("orders", "later", version=12)
    ask.produce("orders", at(3000))
    assert [place(ask, LATEST, level) for level in (READ_UNCOMMITTED, READ_COMMITTED)] == [3, 1]
    assert [place(ask, MAX_TIMESTAMP, level) for level in (READ_UNCOMMITTED, READ_COMMITTED)] == [2, 0]
    assert [place(ask, 2000, level) for level in (READ_UNCOMMITTED, READ_COMMITTED)] == [2, -1]
    producer.end()
    assert [place(ask, LATEST, level) for level in (READ_UNCOMMITTED, READ_COMMITTED)] == [4, 4]
    assert [place(ask, 2000, level) for level in (READ_UNCOMMITTED, READ_COMMITTED)] == [2, 2]


def test_where_the_beginning_of_an_open_transaction_was_deleted_the_log_start_is_what_is_stable(ask: Asker) -> None:
    ask.create("orders")
    producer = owner(ask, "one")
    producer.send("orders", "deleted", version=12)
    below = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}]
    ask(DELETE_RECORDS, topics=below, timeout_ms=1000)
    producer.send("orders", "kept", version=12)
    found = fetch(ask, "orders", 1)
    assert (found.high_watermark, found.last_stable_offset, offsets(found)) == (2, 1, [])
    assert place(ask, LATEST, READ_COMMITTED) == 1
    producer.end(committed=False)
    found = fetch(ask, "orders", 1)
    assert (offsets(found), aborted(found)) == ([1, 2], [(producer.identity[0], 0)])


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused(ask: Asker, version: int) -> None:
    ask.create("orders")
    producer = owner(ask, "one")
    producer.send("orders", "inside", version=12)
    producer_id, epoch = producer.identity
    batch = encode_batch([Record(b"outside")], producer_id=producer_id, producer_epoch=epoch, base_sequence=1)
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
    answer = ask(PRODUCE, version, transactional_id="one", acks=-1, timeout_ms=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_in_a_request_without_a_transactional_id_is_refused_before_all_else(ask: Asker) -> None:
    ask.create("orders")
    producer = owner(ask, "one")
    producer.send("orders", "first", version=12)
    producer_id, epoch = producer.identity
    for sequence in (0, 1, 7):
        batch = encode_batch(
            [Record(b"value")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = ask(PRODUCE, 12, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        (refused,) = answer.responses[0].partition_responses
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_request_with_a_transactional_id_makes_no_transaction_of_a_plain_batch(ask: Asker) -> None:
    """Or whoever claims to be in a transaction could stop all who read committed records (CVE-2018-17196)."""
    ask.create("orders")
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(encode_batch(at(1000)))}]}]
    answer = ask(PRODUCE, 12, transactional_id="one", acks=-1, timeout_ms=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert offsets(fetch(ask, "orders")) == [0]


def test_after_an_end_that_raised_the_epoch_a_producer_is_shown_without_a_last_number(ask: Asker) -> None:
    ask.create("orders")
    producer = owner(ask, "one")

    def active() -> Any:
        (topic,) = ask(DESCRIBE_PRODUCERS, topics=[{"name": "orders", "partition_indexes": [0]}]).topics
        (found,) = topic.partitions[0].active_producers
        return found.last_sequence, found.current_txn_start_offset

    ask.produce("orders", at(1000))
    producer.send("orders", "first", version=12)
    producer.send("orders", "second", version=12)
    assert active() == (1, 1)
    producer.end(version=4)
    assert active() == (1, -1)
    producer.send("orders", "third", version=12)
    producer.end(version=5)
    assert active() == (-1, -1)
