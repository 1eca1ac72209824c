"""A share consumer that means harm takes all that there is, names what is not its own, and is in two places at once. It
is refused, others go on, and nothing that it has held is held for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from watched import serving

from asking import Asker, at
from guarded import DENIED_GROUP, GROUP, READ, STRANGER, TOPIC, GuardedBroker, rule
from semel.log.broker.broker import Broker
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import (
    CREATE_PARTITIONS,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
)
from sharing import ACCEPT, RELEASE, RENEW, Sharer, another, configure, sharer
from sharing import GROUP as GROUP_RESOURCE
from stepping import Asked, after_each_step, ask, create, in_a_broker

EVERYTHING = {"max_records": 2**31 - 1, "batch_size": 2**31 - 1, "max_bytes": 2**31 - 1, "min_bytes": 2**31 - 1}


class ByHand:
    """Asks a broker of this process, over a connection of this number."""

    def __init__(self, broker: Broker, over: int = 1) -> None:
        self.broker = broker
        self.over = over

    def __call__(self, api_key: int, version: int | None = None, **values: Any) -> Any:
        return ask(self.broker, api_key, version, over=self.over, **values)

    def ask_later(self, api_key: int, version: int, **values: Any) -> Callable[[], Any]:
        return Asked(self.broker, api_key, version, over=self.over, **values).answer

    def produce(self, name: str, count: int, index: int = 0) -> None:
        for _ in range(count):
            data = [
                {"name": name, "partition_data": [{"index": index, "records": bytes(encode_batch([Record(b"v")]))}]}
            ]
            answer = self(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == 0
        self.broker.log.sync_now()


def by_hand(broker: Broker, records: int, member_id: str = "ada", over: int = 1) -> Sharer:
    """A member of a group that begins at the first of so many records."""
    hand = ByHand(broker, over)
    if broker.log.state.catalog.named("jobs") is None:
        create(broker, "jobs")
        hand.produce("jobs", records)
        configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": "workers", "configs": configs}
        ask(broker, INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
    member: Any = Sharer(hand, broker.log.state.catalog.existing("jobs").topic_id, member_id)  # type: ignore[arg-type]
    assert member.beat(0, "jobs").error_code == 0
    broker.log.sync_now()
    return member


def share_fetch(member: Sharer, epoch: int = 0, **options: int) -> Asked:
    """A request of a member that is served by hand."""
    fields: dict[str, Any] = {**EVERYTHING, "max_wait_ms": 0, "share_acquire_mode": 0, "is_renew_ack": False, **options}
    session = {"group_id": member.group, "member_id": member.member_id, "share_session_epoch": epoch}
    topics = [] if epoch else member._topics((), {"partition_max_bytes": 0})
    broker = member.ask.broker  # type: ignore[attr-defined]
    return Asked(broker, SHARE_FETCH, 2, topics=topics, forgotten_topics_data=[], **session, **fields)


def held(broker: Broker) -> int:
    """The records that somebody holds, in all groups."""
    group = broker.log.state.groups.existing("workers").machine
    return sum(
        last - first + 1
        for _, partition in group.partitions()
        for first, last, state in partition.runs()
        if state.holder is not None
    )


# -- what it takes ----------------------------------------------------------------------------------------------------


def test_one_address_does_not_get_all_share_sessions() -> None:
    with serving(share_sessions_max=8) as broker:
        stranger, honest = broker.connect(source="127.0.0.2"), broker.connect()
        ada = sharer(stranger, records=1)
        errors = [another(ada, f"m{number}").fetch().error_code for number in range(8)]
        assert errors == [0] * 4 + [ErrorCode.SHARE_SESSION_LIMIT_REACHED] * 4
        assert another(ada, "bob", honest).fetch().error_code == 0


def test_one_address_does_not_get_the_partitions_of_all_share_sessions() -> None:
    with serving(share_session_partitions_max=8) as broker:
        stranger, honest = broker.connect(source="127.0.0.2"), broker.connect()
        ada = sharer(stranger, records=1)

        def named(count: int, member: Sharer) -> int:
            no_acks = {"partition_max_bytes": 0, "acknowledgement_batches": []}
            partitions = [{"partition_index": number, **no_acks} for number in range(count)]
            topics = [{"topic_id": member.topic_id, "partitions": partitions}]
            return int(member.fetch(topics=topics).error_code)

        assert named(8, ada) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        ada.epoch = 0
        assert [named(count, ada) for count in (3, 4, 9)] == [0, 0, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        assert named(2, another(ada, "bob", honest)) == 0
        assert broker.look(lambda b: b.share_groups.sessions._partition_count) == 6


def test_who_gets_no_session_waits_before_it_is_told_so() -> None:
    """Otherwise it would ask again at once, for ever."""

    def test(broker: Broker) -> None:
        assert by_hand(broker, 1).got() == [(0, 0, 1)]
        asked = share_fetch(by_hand(broker, 1, "bob"), max_wait_ms=60_000)
        while asked.step():
            pass
        assert not asked.is_answered

    in_a_broker(test, share_sessions_max=1)


def test_a_group_that_has_all_records_in_flight_does_not_stop_another() -> None:
    with serving(share_records_max=30) as broker:
        ada = sharer(broker.connect(), records=40)
        assert sum(last - first + 1 for first, last, _ in ada.got(**EVERYTHING)) == 30
        configure(broker.connect(), "others", auto_offset_reset="earliest")
        other = Sharer(broker.connect(), ada.topic_id, "bob", "others")
        assert other.beat(0, "jobs").error_code == 0
        assert other.got() == [(0, 9, 1)]
        assert other.got() == []
        assert other.got(acks=[(0, 9, [ACCEPT])]) == [(10, 19, 1)]


def test_fetches_that_wait_are_bounded() -> None:
    with serving(waiting_partitions_max=0) as broker:
        ada = sharer(broker.connect())
        assert ada.got(max_wait_ms=60_000) == [], "at once"


def test_share_partitions_are_deleted_when_there_are_as_many_as_may_be() -> None:
    with serving(share_partitions_max=1) as broker:
        ada = sharer(broker.connect(), records=1)
        ada.got()
        ada.got(share_session_epoch=-1)
        ada.beat(-1)
        topics = [{"topic_name": "jobs"}]
        (answer,) = ada.ask(DELETE_SHARE_GROUP_OFFSETS, group_id="workers", topics=topics).responses
        assert answer.error_code == 0
        assert broker.look(lambda b: b.log.state.groups.shares.partitions) == 0


@pytest.mark.parametrize(
    "options", [{"max_records": 0}, {"max_records": -1}, {"max_records": 2**31 - 1, "batch_size": 0}]
)
def test_nonsense_about_sizes_harms_nobody(ask: Asker, options: dict[str, int]) -> None:
    ada = sharer(ask, records=3)
    assert sum(last - first + 1 for first, last, _ in ada.got(**options)) in (0, 3)
    assert another(ada, "bob").fetch().error_code == 0


# -- what it says -----------------------------------------------------------------------------------------------------


def test_no_record_gets_two_words_in_one_request(ask: Asker) -> None:
    ada = sharer(ask, records=3)
    ada.got()
    assert ada.acknowledge((0, 1, [ACCEPT]), (1, 2, [RELEASE])) == ErrorCode.INVALID_RECORD_STATE
    assert ada.acknowledge(*[(1, 1, [RENEW])] * 1_000, is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    assert ada.acknowledge((1, 2, [ACCEPT]), (0, 0, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    assert ada.acknowledge((0, 2, [ACCEPT])) == 0


def test_a_partition_that_a_request_names_twice_is_refused(ask: Asker) -> None:
    """One of the two acknowledgements would be lost, and answered as if it counted."""
    ada = sharer(ask, records=2)
    ada.got()
    topics = ada._topics([(0, 0, [ACCEPT])], {}) + ada._topics([(1, 1, [ACCEPT])], {})
    assert ada.acknowledge(topics=topics) == ErrorCode.INVALID_REQUEST
    assert ada.acknowledge((0, 1, [ACCEPT])) == 0


def test_very_many_ranges_of_what_nobody_has_are_refused(ask: Asker) -> None:
    ada = sharer(ask, records=2)
    ada.got()
    assert ada.acknowledge(*[(2 * n, 2 * n, [ACCEPT]) for n in range(3_000)]) == ErrorCode.INVALID_REQUEST
    assert ada.acknowledge((-(2**63), 2**63 - 1, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    assert ada.acknowledge((0, 1, [ACCEPT])) == 0


@pytest.mark.parametrize("epoch", [-2, 0, 3, 2**31 - 1])
def test_an_acknowledgement_of_another_epoch_changes_nothing(ask: Asker, epoch: int) -> None:
    ada = sharer(ask, records=1)
    ada.got()
    refused = ada.acknowledge((0, 0, [ACCEPT]), share_session_epoch=epoch)
    assert refused == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert ada.acknowledge((0, 0, [ACCEPT]), share_session_epoch=1) == 0


# -- where it is, and what goes on meanwhile --------------------------------------------------------------------------


def test_a_fetch_whose_session_ends_while_it_waits_gets_nothing(ask: Asker, broker: FaultyBroker) -> None:
    ada = sharer(ask)
    assert ada.got() == []
    waiting = ada.fetch_later(max_wait_ms=60_000)
    with Asker(broker.bootstrap) as other:
        elsewhere = Sharer(other, ada.topic_id, "ada")
        assert elsewhere.fetch(share_session_epoch=-1).error_code == 0
        other.produce("jobs", at(1))
        assert waiting().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert another(elsewhere, "bob").got() == [(0, 0, 1)]


def test_a_later_session_of_a_member_keeps_what_it_holds_when_the_former_connection_is_lost() -> None:
    """However far the release of the former session's records has come."""

    def test(broker: Broker) -> None:
        former = by_hand(broker, 4, over=1)
        assert former.got(max_records=2) == [(0, 1, 1)]
        later = by_hand(broker, 4, over=2)
        assert later.got() == [(0, 1, 2), (2, 3, 1)]
        broker.share_groups.end_sessions_of(1)
        assert held(broker) == 4
        assert later.acknowledge((0, 3, [ACCEPT])) == 0

    in_a_broker(test)


def test_what_a_member_acquires_while_its_session_ends_is_free_in_the_end() -> None:
    def begin(broker: Broker) -> Asked:
        ada = by_hand(broker, 3)
        assert ada.got(max_records=1) == [(0, 0, 1)]
        return share_fetch(ada, 1)

    def lose(broker: Broker, asked: Asked) -> int:
        broker.share_groups.end_sessions_of(1)
        asked.answer()
        return held(broker)

    came_of_it = after_each_step(begin, lose)
    assert set(came_of_it) == {0}
    assert len(came_of_it) > 3


def test_a_topic_that_goes_while_a_member_looks_for_records_leaves_nothing_behind() -> None:
    def begin(broker: Broker) -> Asked:
        return share_fetch(by_hand(broker, 3))

    def delete(broker: Broker, asked: Asked) -> tuple[int, int]:
        topics = [{"name": "jobs", "topic_id": bytes(16)}]
        assert ask(broker, DELETE_TOPICS, topics=topics, timeout_ms=1000).responses[0].error_code == 0
        asked.answer()
        shares = broker.log.state.groups.shares
        return shares.partitions, shares.records

    came_of_it = after_each_step(begin, delete)
    assert set(came_of_it) == {(0, 0)}
    assert len(came_of_it) > 3


def test_a_topic_of_the_same_name_is_another_one(ask: Asker) -> None:
    ada = sharer(ask, records=2)
    assert ada.got() == [(0, 1, 1)]
    ask(DELETE_TOPICS, topics=[{"name": "jobs", "topic_id": bytes(16)}], timeout_ms=1000)
    old_id, ada.topic_id = ada.topic_id, ask.create("jobs").topic_id
    ask.produce("jobs", at(1))
    answer = ada.fetch()
    errors = {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}
    assert errors == {old_id: ErrorCode.UNKNOWN_TOPIC_ID, ada.topic_id: 0}
    ada.topic_id = old_id
    assert ada.acknowledge((0, 1, [ACCEPT])) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_that_is_added_later_is_read_from_then_on(ask: Asker) -> None:
    ada = sharer(ask)
    partitions = [{"partition_index": 1, "partition_max_bytes": 0, "acknowledgement_batches": []}]
    topics = [{"topic_id": ada.topic_id, "partitions": partitions}]
    (partition,) = ada.fetch(topics=topics).responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    grown = [{"name": "jobs", "count": 2, "assignments": None}]
    ask(CREATE_PARTITIONS, topics=grown, timeout_ms=1000, validate_only=False)
    ask.produce("jobs", at(1), partition=1)
    assert ada.got(topics=[]) == [(0, 0, 1)]


def test_rights_that_are_taken_away_end_a_fetch_that_waits() -> None:
    with GuardedBroker() as broker, Asker(broker.bootstrap) as ask, Asker(broker.bootstrap, source=STRANGER) as eve:
        ada = sharer(ask)
        of_group, of_topic = rule(GROUP, "workers", READ), rule(TOPIC, "jobs", READ)
        broker.add(of_group, of_topic)
        stranger = another(ada, "eve", eve)
        assert stranger.got() == []
        waiting = stranger.fetch_later(max_wait_ms=60_000)
        broker.remove(of_group)
        ask.produce("jobs", at(1))
        assert waiting().error_code == DENIED_GROUP
        assert stranger.acknowledge((0, 0, [ACCEPT])) == DENIED_GROUP
        assert ada.got() == [(0, 0, 1)]


def test_a_lost_connection_shortens_the_session_of_a_member(ask: Asker, broker: FaultyBroker) -> None:
    """As in other groups: 40 % of it is left."""
    ada = sharer(ask, records=1)
    with Asker(broker.bootstrap) as other:
        another(ada, "bob", other)
    broker.skip(20.0)
    (group,) = ask(SHARE_GROUP_DESCRIBE, group_ids=["workers"], include_authorized_operations=False).groups
    assert [member.member_id for member in group.members] == ["ada"]
