"""ShareFetch: members acquire records, each record goes to one of them, and every delivery is counted."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from asking import Asker, at
from semel.log.broker.limits import Limits
from semel.testing.broker import FaultyBroker
from semel.testing.pair import BrokerPair
from semel.wire.errors import ErrorCode
from semel.wire.versions import DELETE_RECORDS
from sharing import ACCEPT, RELEASE, Sharer, another, configure, sharer
from transacting import TransactionalProducer


def test_each_record_goes_to_one_member(ask: Asker) -> None:
    ada = sharer(ask, records=4)
    bob = another(ada, "bob")
    assert ada.got(max_records=2) == [(0, 1, 1)]
    assert bob.got() == [(2, 3, 1)]
    assert ada.got() == []


def test_the_answer_has_the_records_and_the_time_of_the_lock(ask: Asker) -> None:
    ada = sharer(ask, records=3)
    answer = ada.fetch(max_records=2)
    assert answer.acquisition_lock_timeout_ms == 30_000
    (partition,) = answer.responses[0].partitions
    # Two batches of the log.
    assert partition.records[:8] == bytes(8)
    assert len(partition.records) == 2 * (12 + int.from_bytes(partition.records[8:12], "big"))


def test_a_strict_limit_divides_a_batch_and_the_other_mode_does_not(ask: Asker) -> None:
    ada = sharer(ask)
    ask.produce("jobs", at(1, 2, 3, 4))
    ask.produce("jobs", at(5, 6, 7, 8))
    assert ada.got(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert ada.got(max_records=3) == [(3, 7, 1)]


def test_nobody_gets_more_than_the_group_may_have_in_flight(ask: Asker) -> None:
    ada = sharer(ask)
    configure(ask, partition_max_record_locks="100")
    for _ in range(3):
        ask.produce("jobs", at(*range(60)))
    assert ada.got() == [(0, 99, 1)]
    assert ada.got() == []
    assert ada.got(acks=[(0, 59, [ACCEPT])]) == [(100, 159, 1)]


def test_what_a_request_acknowledges_counts_before_it_acquires(ask: Asker) -> None:
    ada = sharer(ask, records=2)
    assert ada.got() == [(0, 1, 1)]
    assert ada.got(acks=[(0, 0, [ACCEPT]), (1, 1, [RELEASE])]) == [(1, 1, 2)]
    answer = ada.fetch(acks=[(5, 9, [ACCEPT])])
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.acknowledge_error_code) == (0, ErrorCode.INVALID_REQUEST)


def test_a_fetch_waits_for_records_and_for_those_that_are_released(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask)
    with Asker(semel_broker.bootstrap) as other, Asker(semel_broker.bootstrap) as producer:
        bob = another(ada, "bob", other)
        waiting = ada.fetch_later(max_wait_ms=30_000)
        producer.produce("jobs", at(1))
        assert waiting().responses[0].partitions[0].acquired_records[0].delivery_count == 1
        # Longer than the test waits for an answer.
        waiting = bob.fetch_later(max_wait_ms=60_000)
        assert ada.acknowledge((0, 0, [RELEASE])) == 0
        assert waiting().responses[0].partitions[0].acquired_records[0].delivery_count == 2


def test_a_lock_times_out(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=1)
    bob = another(ada, "bob")
    assert ada.got() == [(0, 0, 1)]
    assert bob.got() == []
    semel_broker.skip(30.0)
    assert bob.got(max_wait_ms=30_000) == [(0, 0, 2)]
    assert ada.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


def test_a_lost_connection_releases_what_its_members_hold(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=1)
    configure(ask, record_lock_duration_ms="60000")
    with Asker(semel_broker.bootstrap) as other:
        assert another(ada, "bob", other).got() == [(0, 0, 1)]
    assert ada.got(max_wait_ms=20_000) == [(0, 0, 2)]


def test_what_was_acknowledged_and_how_often_a_record_was_delivered_survive_a_kill(semel_broker: FaultyBroker) -> None:
    with ExitStack() as connections:

        def connection() -> Asker:
            """It is open when the broker is killed: what its member holds is not released before."""
            return connections.enter_context(Asker(semel_broker.bootstrap))

        ada = sharer(connection(), records=3)
        assert ada.got() == [(0, 2, 1)]
        assert ada.acknowledge((1, 1, [ACCEPT])) == 0
        for deliveries in (2, 3):
            semel_broker.kill()
            semel_broker.start()
            again = Sharer(connection(), ada.topic_id, "bob")
            assert again.got(max_wait_ms=20_000) == [(0, 0, deliveries), (2, 2, deliveries)]


def test_a_record_is_done_when_it_was_delivered_as_often_as_the_group_allows(ask: Asker) -> None:
    ada = sharer(ask, records=1)
    configure(ask, delivery_count_limit="2")
    assert ada.got() == [(0, 0, 1)]
    assert ada.got(acks=[(0, 0, [RELEASE])]) == [(0, 0, 2)]
    assert ada.got(acks=[(0, 0, [RELEASE])]) == []


@pytest.mark.parametrize("is_committed_only", [True, False])
def test_aborted_records_are_never_delivered_to_a_group_that_reads_committed_ones(
    ask: Asker, producer: TransactionalProducer, is_committed_only: bool
) -> None:
    ada = sharer(ask)
    configure(ask, isolation_level="read_committed" if is_committed_only else "read_uncommitted")
    producer.add("jobs")
    assert producer.send("jobs", "half") == 0
    # A group of all records does not wait for the end of a transaction.
    assert ada.got() == ([] if is_committed_only else [(0, 0, 1)])
    producer.end(committed=False)
    ask.produce("jobs", at(2))
    producer.add("jobs")
    assert producer.send("jobs", "whole") == 0
    producer.end(committed=True)
    # The marker takes offset 1, and nobody gets it.
    assert ada.got() == [(2, 3, 1)]


def test_deleted_records_hold_up_nothing(ask: Asker) -> None:
    ada = sharer(ask, records=3)
    assert ada.got(max_records=1) == [(0, 0, 1)]
    partition = {"partition_index": 0, "offset": 2}
    ask(DELETE_RECORDS, topics=[{"name": "jobs", "partitions": [partition]}], timeout_ms=1000)
    assert ada.got(acks=[(0, 0, [ACCEPT])]) == [(2, 2, 1)]


def test_a_group_begins_at_the_end_unless_it_is_told_otherwise(ask: Asker) -> None:
    topic = ask.create("jobs")
    ask.produce("jobs", at(1))
    ada = Sharer(ask, topic.topic_id)
    ada.beat(0, "jobs")
    assert ada.got() == []
    ask.produce("jobs", at(2))
    assert ada.got() == [(1, 1, 1)]


def test_a_session_has_epochs_and_an_owner(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=1)
    stranger = Sharer(ask, ada.topic_id, "eve")
    assert stranger.fetch(share_session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert ada.got() == [(0, 0, 1)]
    assert ada.fetch(share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    ada.epoch = 1
    assert ada.got(acks=[(0, 0, [RELEASE])]) == [(0, 0, 2)]
    assert ada.got(share_session_epoch=-1) == []
    assert another(ada, "bob").got() == [(0, 0, 3)], "the end of a session releases what it held"
    assert ada.fetch(share_session_epoch=0, acks=[(0, 0, [ACCEPT])]).error_code == ErrorCode.INVALID_REQUEST


def test_nobodys_session_gives_way_to_another() -> None:
    with FaultyBroker(limits=Limits(share_sessions_max=1)) as broker, Asker(broker.bootstrap) as ask:
        ada = sharer(ask, records=1)
        assert ada.got() == [(0, 0, 1)]
        assert another(ada, "bob").fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert ada.fetch().error_code == 0


def test_only_a_member_with_a_name_of_a_share_group_gets_records(ask: Asker) -> None:
    ada = sharer(ask, records=1)
    assert ada.fetch(member_id="").error_code == ErrorCode.INVALID_REQUEST
    assert ada.fetch(member_id="x" * 37).error_code == ErrorCode.INVALID_REQUEST
    assert ada.fetch(group_id=None).error_code == ErrorCode.INVALID_REQUEST
    assert ada.fetch(group_id="others", share_session_epoch=0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    ada.epoch = 0
    ada.topic_id = bytes(15) + b"\1"
    (partition,) = ada.fetch().responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_takeover_forgets_neither_what_was_acknowledged_nor_how_often_a_record_was_delivered() -> None:
    with BrokerPair() as pair:
        with Asker(pair.active.bootstrap) as ask:
            ada = sharer(ask, records=3)
            assert ada.got() == [(0, 2, 1)]
            assert ada.acknowledge((1, 1, [ACCEPT])) == 0
        pair.take_over()
        with Asker(pair.active.bootstrap) as ask:
            again = Sharer(ask, ada.topic_id, "bob")
            assert again.got(max_wait_ms=30_000) == [(0, 0, 2), (2, 2, 2)]
