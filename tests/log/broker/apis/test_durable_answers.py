"""An answer never speaks of what could still be lost, and a disk that refuses a change is told item by item."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from asking import Asker, at
from eventually import eventually
from held_syncs import HeldSyncs
from semel.log.broker.broker import Broker
from semel.log.storage.journal import StillInJournal
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.errors import ErrorCode
from semel.wire.records import encode_batch
from semel.wire.versions import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from sharing import ACCEPT, another, sharer
from transacting import TransactionalProducer, committed, described

TOPIC = 2
CREATION = {
    "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
    "timeout_ms": 1000,
    "validate_only": False,
}


def beside(broker: Broker, client: Callable[[Broker], None]) -> None:
    """Run a client in a thread beside the broker's event loop."""

    async def scenario() -> None:
        async with broker:
            await asyncio.to_thread(client, broker)

    asyncio.run(scenario())


def test_no_member_hears_what_it_may_read_or_that_it_has_left_before_that_is_durable() -> None:
    """The broker that takes over would give the same partitions to another one."""
    syncs = HeldSyncs()

    def client(broker: Broker) -> None:
        ask, other, third = (Asker(broker.bootstrap) for _ in range(3))
        ask.create("orders")
        who = {"group_id": "readers", "member_id": "a", "rebalance_timeout_ms": 1_000}
        joining = {**who, "member_epoch": 0, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        with syncs.held():
            told = ask.ask_later(CONSUMER_GROUP_HEARTBEAT, 1, **joining)
            assert syncs.began.wait(30)
            # This one changes nothing, and would show what the first one has changed.
            again = other.ask_later(CONSUMER_GROUP_HEARTBEAT, 1, **joining)
            assert third(API_VERSIONS, 0).error_code == 0
            assert not ask.has_answer()
            assert not other.has_answer()
        assert told().assignment == again().assignment
        with syncs.held():
            left = ask.ask_later(CONSUMER_GROUP_HEARTBEAT, 1, **who, member_epoch=-1, topic_partitions=None)
            assert syncs.began.wait(30)
            assert third(API_VERSIONS, 0).error_code == 0
            assert not ask.has_answer()
        assert left().error_code == 0

    beside(Broker(disk_threads=syncs), client)


def test_no_record_is_delivered_before_its_delivery_is_durable() -> None:
    """After a loss of power the record would come again as if for the first time, however often it kills its
    consumer.
    """
    syncs = HeldSyncs()

    def client(broker: Broker) -> None:
        ask, other, third = (Asker(broker.bootstrap) for _ in range(3))
        ada = sharer(ask, records=1)
        bob = another(ada, "bob", other)
        # Each has its session, and the share partition has begun.
        assert bob.got(topics=[]) == []
        with syncs.held():
            delivered = ada.fetch_later()
            assert syncs.began.wait(30)
            # It gets nothing, because Ada has it, and must not show that yet.
            nothing = bob.fetch_later()
            assert third(API_VERSIONS, 0).error_code == 0
            assert not ask.has_answer()
            assert not other.has_answer()
        assert delivered().responses[0].partitions[0].acquired_records[0].delivery_count == 1
        assert not nothing().responses
        with syncs.held():
            said = ada.fetch_later(acks=[(0, 0, [ACCEPT])])
            assert syncs.began.wait(30)
            assert not ask.has_answer()
        assert said().error_code == 0

    beside(Broker(disk_threads=syncs), client)


def test_an_answer_waits_until_the_change_is_durable() -> None:
    syncs = HeldSyncs()

    def client(broker: Broker) -> None:
        ask, other = Asker(broker.bootstrap), Asker(broker.bootstrap)
        with syncs.held():
            made = ask.ask_later(CREATE_TOPICS, 5, **CREATION)
            assert syncs.began.wait(30)
            assert broker.log.state.catalog.named("new") is not None
            assert other(API_VERSIONS, 0).error_code == 0, "others are served meanwhile"
            shown = other.ask_later(METADATA, 1, topics=None)
            assert not ask.has_answer()
            assert not other.has_answer(), "nobody is shown what is not durable"
        assert made().topics[0].error_code == 0
        assert [topic.name for topic in shown().topics] == ["new"]

    beside(Broker(files=FaultyFiles(), disk_threads=syncs), client)
    assert syncs.began.is_set()


def test_records_that_are_not_durable_yet_cannot_be_deleted() -> None:
    """Or a loss of power would leave a log that begins behind its end."""
    syncs = HeldSyncs()

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)
        ask.create("orders")
        (partition,) = broker.log.state.partitions.all()
        record = {"index": 0, "records": bytes(encode_batch(at(1000)))}
        data = [{"name": "orders", "partition_data": [record]}]
        sent = {"transactional_id": None, "timeout_ms": 1000, "topic_data": data}
        with syncs.held():
            ask(PRODUCE, 9, acks=1, **sent)
            below = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]} for offset in (1, -1)]
            answers = [ask.ask_later(DELETE_RECORDS, 2, topics=[topic], timeout_ms=1000) for topic in below]
            # The requests of a connection are served in their order: when this one is, those before it are decided.
            ask.ask_later(PRODUCE, 9, acks=0, **sent)
            assert eventually(lambda: partition.state.next_offset == 2)
        decided = [answer().topics[0].partitions[0] for answer in answers]
        assert [one.error_code for one in decided] == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]
        assert [one.low_watermark for one in decided] == [-1, 0]

    beside(Broker(files=FaultyFiles(), disk_threads=syncs), client)


def test_changes_that_the_disk_refuses_are_refused_one_by_one_and_go_once_there_is_space() -> None:
    files = FaultyFiles()

    def changes(ask: Asker, topic_id: bytes) -> list[int]:
        """The error code of each change."""
        resource = {"resource_type": TOPIC, "resource_name": "orders"}
        configs = [{"name": "retention.ms", "value": "1000"}]
        below = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]
        growth = [{"name": "orders", "count": 2, "assignments": None}]
        deletion = [{"name": None, "topic_id": topic_id}]
        answers: list[Any] = [
            *ask(CREATE_TOPICS, **CREATION).topics,
            *ask(CREATE_PARTITIONS, topics=growth, timeout_ms=1000, validate_only=False).results,
            *ask(ALTER_CONFIGS, resources=[{**resource, "configs": configs}], validate_only=False).responses,
            *ask(DELETE_RECORDS, topics=below, timeout_ms=1000).topics[0].partitions,
            *ask(DELETE_TOPICS, topics=deletion, timeout_ms=1000).responses,
        ]
        return [int(answer.error_code) for answer in answers]

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)
        created = ask.create("orders")
        ask.produce("orders", at(1000, 2000))
        files.arm(Fault("ENOSPC", call="write", lasting=True))
        assert changes(ask, created.topic_id) == [ErrorCode.KAFKA_STORAGE_ERROR] * 5
        # The checkpoint that was to make space may have been refused by now, and counts as well.
        assert broker.metrics.storage_errors in (5, 6)
        files.disarm()
        assert [topic.name for topic in broker.log.state.catalog] == ["orders"]
        assert changes(ask, created.topic_id) == [0] * 5
        assert [topic.name for topic in broker.log.state.catalog] == ["new"]

    beside(Broker(files=files), client)


def test_a_producer_that_gets_no_id_for_want_of_space_may_try_again() -> None:
    files = FaultyFiles()

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)
        files.arm(Fault("ENOSPC", call="write", lasting=True))
        refused = ask(INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=1000)
        assert (refused.error_code, refused.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        files.disarm()
        assert ask(INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=1000).error_code == 0

    beside(Broker(files=files), client)


def test_an_id_that_the_disk_refuses_counts_as_one_refusal_of_the_disk() -> None:
    files = FaultyFiles()

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)

        def refused(transactional_id: str | None) -> int:
            files.arm(Fault("EIO", call="write", path="journal/*"))
            ask(INIT_PRODUCER_ID, transactional_id=transactional_id, transaction_timeout_ms=60_000)
            return broker.metrics.storage_errors

        # What is refused is a block of ids twice, then the claim.
        assert [refused(None), refused("payments")] == [1, 2]
        assert TransactionalProducer(ask, "refunds").claim() == 0
        assert refused("payments") == 3

    beside(Broker(files=files), client)


def test_a_claim_of_which_the_disk_took_no_more_than_the_abort_may_be_made_again() -> None:
    files = FaultyFiles()

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)
        ask.create("orders")
        zombie, successor = TransactionalProducer(ask), TransactionalProducer(ask)
        zombie.claim()
        zombie.add("orders")
        zombie.send("orders", "never committed")
        files.arm(Fault("EIO", at=len(files.calls) + 2, call="write", path="journal/*"))
        assert successor.claim() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert described(ask).transaction_state == "CompleteAbort"
        assert zombie.send("orders", "late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert zombie.end() == ErrorCode.PRODUCER_FENCED
        assert successor.claim() == 0
        assert committed(ask, "orders") == []

    beside(Broker(files=files), client)


def test_a_place_that_cannot_be_read_is_an_error_of_its_own_partition() -> None:
    files = FaultyFiles()

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)
        ask.create("orders")
        ask.produce("orders", at(1000, 2000))
        places = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1500}]
        asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": places}]}
        files.arm(Fault("EIO", call="read", lasting=True))
        assert ask(LIST_OFFSETS, 7, **asked).topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.disarm()
        assert ask(LIST_OFFSETS, 7, **asked).topics[0].partitions[0].offset == 1
        (segment,) = broker.log.state.partitions.all()[0].segments
        files.open(segment.path).truncate(30)
        assert ask(LIST_OFFSETS, 7, **asked).topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert broker.metrics.failed_reads == 3

    # The last checkpoint would free the journal, which has the records still.
    with pytest.raises(StillInJournal, match="start again"):
        beside(Broker(files=files), client)
