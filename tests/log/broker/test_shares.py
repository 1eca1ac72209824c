"""Producers, transactional ids and groups are shared out by address: no client can take them from all others.

A producer's place in a partition is taken when a transaction announces it, once, and then it is there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from watched import serving

from asking import Asker
from ledger import SETTINGS, batch
from semel.log.broker.broker import Broker
from semel.log.core.batch_checks import Sender
from semel.log.core.entries import PartitionName
from semel.log.core.shares import NoShareLeft
from semel.log.core.transaction_rules import IdClaim
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.batch import TRANSACTIONAL_BIT, read_header
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.sequences import Outcome
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, PRODUCE
from transacting import TransactionalProducer


def beside(scenario: Callable[[Broker, FaultyFiles], Awaitable[None]]) -> None:
    """In a broker with one topic of eight partitions, which has room for eight producers."""

    async def run() -> None:
        files = FaultyFiles()
        async with Broker(files=files, settings=replace(SETTINGS, producer_states_max=8)) as broker:
            broker.runtime.commit(
                broker.log.state.catalog.decide_create("orders", 8, {}, bytes(16), broker.clock.now_ms())
            )
            await scenario(broker, files)

    asyncio.run(run())


def announce(broker: Broker, claim: IdClaim, partitions: range, address: str) -> None:
    number = broker.log.state.catalog.existing("orders").number
    names = [PartitionName(number, index) for index in partitions]
    broker.transactions.add_partitions("mine", claim.producer_id, claim.producer_epoch, names, address)


def send(broker: Broker, producer_id: int, partition: int, address: str, attributes: int = 0) -> Outcome:
    log, sent = broker.log, batch(producer_id, 0, at_ms=broker.clock.now_ms(), attributes=attributes)
    topic = log.state.catalog.existing("orders")
    where = log.state.partitions.of(topic)[partition]
    return log.append(topic, where, read_header(sent), sent, broker.clock.now_ms(), Sender(address)).outcome


def test_what_the_disk_did_not_take_is_charged_to_nobody() -> None:
    """A client tries again every tenth of a second: a minute of a full disk would be its room for a week."""

    async def scenario(broker: Broker, files: FaultyFiles) -> None:
        mine = broker.transactions.claim("mine", 60_000, None)
        announce(broker, mine, range(1), "honest")
        files.arm(Fault("ENOSPC", call="write", path="journal/*", lasting=True))
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                announce(broker, mine, range(3), "honest")
        files.disarm()
        assert broker.log.state.producer_shares.charged("honest", None) == 1
        announce(broker, mine, range(3), "honest")
        assert broker.log.state.producer_shares.charged("honest", None) == 3

    beside(scenario)


def test_what_was_announced_finds_the_room_that_was_taken_for_it() -> None:
    """However much others have taken since: its transaction would have to be aborted, and could not begin anew."""

    async def scenario(broker: Broker, files: FaultyFiles) -> None:
        mine = broker.transactions.claim("mine", 60_000, None)
        announce(broker, mine, range(2), "honest")
        for producer_id, address in enumerate(["one", "two", "two", "three", "three"], 5000):
            assert send(broker, producer_id, 7, address) is Outcome.ACCEPTED
        for partition in range(2):
            assert send(broker, mine.producer_id, partition, "honest", TRANSACTIONAL_BIT) is Outcome.ACCEPTED
        with pytest.raises(NoShareLeft, match="honest has put 2"):
            send(broker, 6000, 7, "honest")

    beside(scenario)


def test_a_producer_of_whom_only_the_end_of_a_transaction_is_on_record_takes_the_room_of_one() -> None:
    """The broker keeps as much of it as of any other."""

    async def scenario(broker: Broker, files: FaultyFiles) -> None:
        for partition in range(8):
            mine = broker.transactions.claim("mine", 60_000, None)
            announce(broker, mine, range(partition, partition + 1), f"address {partition}")
        broker.transactions.claim("mine", 60_000, None)
        assert broker.log.state.partitions.producer_count == 8
        with pytest.raises(NoShareLeft, match="8 producers are on record"):
            send(broker, 6000, 0, "another")

    beside(scenario)


def test_a_stranger_who_claims_very_many_transactional_ids_locks_nobody_out() -> None:
    with serving(transactional_ids_max=8) as broker:
        stranger, honest = broker.connect(source="127.0.0.2"), broker.connect()
        claims = [TransactionalProducer(stranger, f"id-{number}").claim() for number in range(8)]
        assert claims == [0] * 4 + [ErrorCode.POLICY_VIOLATION] * 4
        assert TransactionalProducer(stranger, "id-0").claim() == 0, "what is on record goes on"
        assert TransactionalProducer(honest, "mine").claim() == 0
        assert broker.look(lambda b: b.metrics.refused_producers) == 4


def test_a_stranger_who_makes_very_many_groups_locks_nobody_out() -> None:
    """In whatever way it makes them."""
    member = {"member_id": "", "generation_id_or_member_epoch": -1}
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [offset]}]
    classic = {"member_id": "", "group_instance_id": None, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    wish = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}], "reason": None}

    def commit(ask: Asker, group: str) -> int:
        answer = ask(OFFSET_COMMIT, 9, group_id=group, topics=topics, **member)
        return int(answer.topics[0].partitions[0].error_code)

    def join_classic(ask: Asker, group: str) -> int:
        return int(ask(JOIN_GROUP, 9, group_id=group, **classic, **wish).error_code)

    def join(ask: Asker, group: str) -> int:
        beat = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
        said = {"group_id": group, "member_id": "a", "topic_partitions": [], **beat}
        return int(ask(CONSUMER_GROUP_HEARTBEAT, 1, **said).error_code)

    with serving(groups_max=8) as broker:
        stranger, honest = broker.connect(source="127.0.0.2"), broker.connect()
        stranger.create("orders")
        producer = TransactionalProducer(stranger)
        producer.claim()
        assert producer.add_group("four") == producer.commit_offset("four", "orders", 0) == 0
        errors = [commit(stranger, "one"), join_classic(stranger, "two"), join(stranger, "three")]
        assert errors == [0, ErrorCode.MEMBER_ID_REQUIRED, 0]
        assert {way(stranger, "more") for way in (commit, join_classic, join)} == {ErrorCode.POLICY_VIOLATION}
        assert producer.add_group("more") == 0
        assert producer.commit_offset("more", "orders", 0) == ErrorCode.POLICY_VIOLATION
        assert commit(stranger, "one") == 0, "what is on record goes on"
        errors = [commit(honest, "mine"), join_classic(honest, "mine too")]
        assert errors == [0, ErrorCode.MEMBER_ID_REQUIRED]


def test_a_stranger_who_fills_the_record_of_producers_locks_nobody_out() -> None:
    """Whether it writes under very many ids, or only announces partitions to transactions that it ends."""
    with serving(producer_states_max=40) as broker:
        stranger, honest = broker.connect(source="127.0.0.2"), broker.connect()
        stranger.create("orders", partitions=20)
        numbered = {
            number: encode_batch([Record(b"")], producer_id=number, producer_epoch=0, base_sequence=0)
            for number in range(5_000, 5_050)
        }

        def sent(ask: Asker, record_batch: bytearray) -> int:
            data = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(record_batch)}]}]
            answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            return int(answer.responses[0].partition_responses[0].error_code)

        told = [sent(stranger, first) for first in numbered.values()]
        assert (told.count(0), told.count(ErrorCode.POLICY_VIOLATION)) == (20, 30)
        transactional = TransactionalProducer(stranger, "many")
        transactional.claim()
        assert transactional.add("orders", partition=1) == [ErrorCode.POLICY_VIOLATION]
        assert broker.look(lambda b: b.metrics.refused_producers) == 31
        # It goes on with what it has, and others find room: by batches, and by transactions.
        more = encode_batch([Record(b"")], producer_id=5_000, producer_epoch=0, base_sequence=1)
        assert sent(stranger, more) == 0
        assert sent(honest, numbered[5_049]) == 0
        mine = TransactionalProducer(honest, "mine")
        mine.claim()
        assert mine.add("orders") == [0]
        assert mine.send("orders", "value") == 0
        assert mine.end() == 0
        assert broker.look(lambda b: b.log.state.producer_shares.charged("127.0.0.1", None)) == 2
