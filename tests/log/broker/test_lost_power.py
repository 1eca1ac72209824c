"""`--durability os` and a loss of power: records may be gone, but nobody gets an identity that somebody else has, and
consumers can tell that the log was cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asking import Asker
from semel.log.broker.journal_pump import Durability
from semel.log.core.leader_epochs import EPOCHS_MAX, LeaderEpochs
from semel.testing.broker import FaultyBroker
from semel.testing.faulty import FaultyFiles, lose_all
from semel.wire.batch import read_header
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import (
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from transacting import TransactionalProducer

LATEST = -1


@contextmanager
def broker_on(files: FaultyFiles, durability: Durability = "os") -> Iterator[tuple[FaultyBroker, Asker]]:
    # On a clock that stands still: otherwise the daily checkpoint would come after the first five seconds.
    with FaultyBroker(files=files, durability=durability, clock=lambda: 1_000.0) as broker:
        asker = Asker(broker.bootstrap)
        yield broker, asker
        asker.close()


def checkpoint(broker: FaultyBroker) -> None:
    """All that was written so far is durable."""

    async def write() -> None:
        broker._broker.log.checkpoint_now()

    broker._call(write())


def producer_id(ask: Asker) -> int:
    answer = ask(INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1)
    assert answer.error_code == 0
    return int(answer.producer_id)


def appended(ask: Asker, producer: int, sequence: int) -> tuple[int, int]:
    """The error and the offset that one batch of a producer is answered with."""
    batch = bytes(encode_batch([Record(b"x")], producer_id=producer, producer_epoch=0, base_sequence=sequence))
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    (told,) = answer.responses[0].partition_responses
    return told.error_code, told.base_offset


# Identities


def test_a_producer_id_is_not_handed_out_again() -> None:
    files = FaultyFiles()
    with broker_on(files) as (broker, ask):
        first = producer_id(ask)
        broker.kill()
    with broker_on(files.survivors(lose_all)) as (_, ask):
        ask.create("orders")
        second = producer_id(ask)
        assert second != first
        assert appended(ask, first, 0) == (0, 0)
        assert appended(ask, second, 0) == (0, 1)


def test_a_producer_whose_first_batches_are_lost_meets_a_gap() -> None:
    files = FaultyFiles()
    with broker_on(files) as (broker, ask):
        ask.create("orders")
        checkpoint(broker)
        producer = producer_id(ask)
        for sequence in range(7):
            assert appended(ask, producer, sequence) == (0, sequence)
        broker.kill()
    with broker_on(files.survivors(lose_all)) as (_, ask):
        assert appended(ask, producer, 7)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_two_owners_of_a_transactional_id_never_share_an_identity() -> None:
    files = FaultyFiles()
    with broker_on(files) as (broker, ask):
        ask.create("orders")
        checkpoint(broker)
        first = TransactionalProducer(ask)
        first.claim()
        had = {first.identity}
        for _ in range(3):
            # Each end raises the epoch, and none of them is on the disk.
            first.send("orders", "x", version=12)
            first.end(version=5)
            had.add(first.identity)
        assert len(had) == 4
        broker.kill()
    with broker_on(files.survivors(lose_all)) as (_, ask):
        second = TransactionalProducer(ask)
        for _ in range(4):
            assert second.claim() == 0
            assert second.identity not in had
            had.add(second.identity)


def test_whoever_was_fenced_stays_fenced() -> None:
    files = FaultyFiles()
    with broker_on(files) as (broker, ask):
        ask.create("orders")
        zombie = TransactionalProducer(ask)
        zombie.claim()
        successor = TransactionalProducer(ask)
        successor.claim()
        broker.kill()
    with broker_on(files.survivors(lose_all)) as (_, ask):
        zombie.ask = successor.ask = ask
        assert zombie.add("orders") != [0]
        assert successor.add("orders") == [0]


# What consumers are told


def partition(ask: Asker) -> Any:
    (topic,) = ask(METADATA, 7, topics=[{"name": "orders"}], allow_auto_topic_creation=False).topics
    return topic.partitions[0]


def end_of_epoch(ask: Asker, epoch: int, current: int = -1) -> tuple[int, int, int]:
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = ask(OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=[{"topic": "orders", "partitions": [asked]}])
    (told,) = answer.topics[0].partitions
    return told.error_code, told.leader_epoch, told.end_offset


def fetched(ask: Asker, offset: int, current: int) -> Any:
    asked = {
        "partition": 0,
        "current_leader_epoch": current,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    topics = [{"topic": "orders", "partitions": [asked]}]
    sizes = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, "isolation_level": 0}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    return ask(FETCH, 11, replica_id=-1, topics=topics, **sizes, **session).responses[0].partitions[0]


def latest(ask: Asker) -> tuple[int, int]:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    answer = ask(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[{"name": "orders", "partitions": [asked]}])
    (told,) = answer.topics[0].partitions
    return told.offset, told.leader_epoch


def test_a_consumer_beyond_the_cut_can_tell() -> None:
    files = FaultyFiles()
    with broker_on(files) as (broker, ask):
        ask.create("orders")
        ask.produce("orders", [Record(b"kept")])
        checkpoint(broker)
        assert partition(ask).leader_epoch == 0
        assert [ask.produce("orders", [Record(b"lost")]) for _ in range(4)] == [1, 2, 3, 4]
        assert fetched(ask, 4, 0).high_watermark == 5
        broker.kill()
    with broker_on(files.survivors(lose_all)) as (broker, ask):
        assert partition(ask).leader_epoch == 1
        described = ask(DESCRIBE_TOPIC_PARTITIONS, topics=[{"name": "orders"}], response_partition_limit=1, cursor=None)
        assert described.topics[0].partitions[0].leader_epoch == 1
        assert fetched(ask, 5, 0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert fetched(ask, 0, 2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert end_of_epoch(ask, 0) == (0, 0, 1)
        # Others go on writing, and what the consumer has read is other records now.
        assert [ask.produce("orders", [Record(b"new")]) for _ in range(5)] == [1, 2, 3, 4, 5]
        assert end_of_epoch(ask, 0, 1) == (0, 0, 1)
        assert end_of_epoch(ask, 1) == (0, 1, 6)
        assert end_of_epoch(ask, 2) == (0, -1, -1)
        assert end_of_epoch(ask, 0, 0)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert latest(ask) == (6, 1)
        batches = fetched(ask, 0, 1).records
        first = read_header(batches)
        assert [first.leader_epoch, read_header(batches, first.batch_bytes).leader_epoch] == [0, 1]
        broker.restart()
        ask = Asker(broker.bootstrap)
        assert partition(ask).leader_epoch == 1, "nothing can be lost by a clean stop"
        assert end_of_epoch(ask, 0) == (0, 0, 1)
        ask.close()


def test_where_nothing_acknowledged_can_be_lost_the_epoch_stays() -> None:
    files = FaultyFiles()
    with broker_on(files, "fsync") as (broker, ask):
        ask.create("orders")
        ask.produce("orders", [Record(b"kept")])
        broker.kill()
    with broker_on(files.survivors(lose_all), "fsync") as (_, ask):
        assert partition(ask).leader_epoch == 0


def test_markers_of_a_recovered_transaction_bear_the_epoch_in_which_they_were_written() -> None:
    files = FaultyFiles()
    with broker_on(files) as (broker, ask):
        ask.create("orders")
        broker.kill()
    files = files.after_kill()
    with broker_on(files) as (broker, ask):
        producer = TransactionalProducer(ask)
        producer.claim()
        producer.add("orders")
        producer.send("orders", "x")
        producer.end()
        before = bytes(fetched(ask, 0, 1).records)
        broker.kill()
    with broker_on(files.after_kill()) as (_, ask):
        assert bytes(fetched(ask, 0, 2).records) == before
        assert end_of_epoch(ask, 1) == (0, 1, 2)


def test_of_very_many_epochs_the_latest_are_told_apart() -> None:
    epochs = LeaderEpochs()
    for epoch in range(1, 2 * EPOCHS_MAX):
        epochs.note(epoch, epoch * 10)
    assert len(epochs.snapshot()) == EPOCHS_MAX
    last = 2 * EPOCHS_MAX - 1
    assert epochs.end_of(last, 5_000) == (last, 5_000)
    assert epochs.end_of(last - 1, 5_000) == (last - 1, last * 10)
    # Who stands in one that is not known any more hears of an end that is too early, never of one too late.
    assert epochs.end_of(1, 5_000) == (0, 10)
    assert (epochs.at(last * 10), epochs.at(last * 10 - 1), epochs.at(0)) == (last, last - 1, 0)
    assert LeaderEpochs(epochs.snapshot()).last == last
