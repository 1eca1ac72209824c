"""Share groups that read several partitions, members of several groups, and groups with a lock of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from asking import Asker, at
from semel.log.broker.limits import Limits
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import DELETE_SHARE_GROUP_OFFSETS
from sharing import ACCEPT, Sharer, another, configure, sharer

Acks = list[tuple[int, int, list[int]]]


class WideSharer(Sharer):
    """A member that reads two partitions, from which it gets the index and the range of what it acquires."""

    def named(self, acks: Mapping[int, Acks] | None = None) -> list[dict[str, Any]]:
        """The topics of a request, with what it says about each partition."""
        partitions = []
        for index in (0, 1):
            (topic,) = self._topics((acks or {}).get(index, ()), {"partition_max_bytes": 0})
            partitions.append({**topic["partitions"][0], "partition_index": index})
        return [{"topic_id": self.topic_id, "partitions": partitions}]

    def acquired(self, **options: Any) -> list[tuple[int, int, int]]:
        answer = self.fetch(topics=self.named(), **options)
        assert answer.error_code == 0, answer.error_message
        (topic,) = answer.responses or [None]
        return sorted(
            (partition.partition_index, batch.first_offset, batch.last_offset)
            for partition in ([] if topic is None else topic.partitions)
            for batch in partition.acquired_records
        )


def wide_sharer(ask: Asker, records: int) -> WideSharer:
    """A member of a group that begins at the first of so many records, each a batch of its own, in both partitions."""
    topic = ask.create("jobs", partitions=2)
    for number in range(records):
        for index in (0, 1):
            ask.produce("jobs", at(1000 + number), partition=index)
    configure(ask, auto_offset_reset="earliest")
    member = WideSharer(ask, topic.topic_id)
    assert member.beat(0, "jobs").error_code == 0
    return member


def test_a_member_gets_no_more_records_than_it_asks_for_in_all_partitions_together(ask: Asker) -> None:
    ada = wide_sharer(ask, records=3)
    assert sum(last - first + 1 for _, first, last in ada.acquired(max_records=4)) == 4


def test_no_partition_waits_behind_another_one_for_ever(ask: Asker) -> None:
    ada = wide_sharer(ask, records=2)
    got = [ada.acquired(max_records=1) for _ in range(2)]
    assert got == [[(0, 0, 0)], [(1, 0, 0)]]


def test_what_is_said_of_one_partition_counts_whatever_is_said_of_another(ask: Asker) -> None:
    ada = wide_sharer(ask, records=2)
    ada.acquired()
    said: dict[int, Acks] = {0: [(5, 9, [ACCEPT])], 1: [(0, 0, [ACCEPT])]}
    answer = ada.fetch(topics=ada.named(said))
    errors = {one.partition_index: one.acknowledge_error_code for one in answer.responses[0].partitions}
    assert errors == {0: ErrorCode.INVALID_REQUEST, 1: 0}
    ada.fetch(share_session_epoch=-1)
    assert ada.acquired(share_session_epoch=0) == [(0, 0, 1), (1, 1, 1)]


def test_a_group_begins_anew_in_all_partitions_of_a_topic(ask: Asker) -> None:
    ada = wide_sharer(ask, records=2)
    ada.acquired()
    said: dict[int, Acks] = {0: [(0, 1, [ACCEPT])], 1: [(0, 1, [ACCEPT])]}
    assert ada.fetch(topics=ada.named(said), share_session_epoch=-1).error_code == 0
    ada.beat(-1)
    (answer,) = ask(DELETE_SHARE_GROUP_OFFSETS, group_id="workers", topics=[{"topic_name": "jobs"}]).responses
    assert answer.error_code == 0
    ada.beat(0, "jobs")
    assert ada.acquired(share_session_epoch=0) == [(0, 0, 1), (1, 0, 1)]


def test_a_partition_that_a_member_forgets_is_read_no_more(ask: Asker) -> None:
    ada = wide_sharer(ask, records=1)
    assert ada.acquired(max_records=0) == []
    forgotten = [{"topic_id": ada.topic_id, "partitions": [0]}]
    answer = ada.fetch(topics=[], forgotten_topics_data=forgotten)
    assert [one.partition_index for one in answer.responses[0].partitions] == [1]


def test_the_lock_of_a_group_is_as_long_as_the_group_says(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=1)
    configure(ask, record_lock_duration_ms="60000")
    bob = another(ada, "bob")
    assert ada.fetch().acquisition_lock_timeout_ms == 60_000
    # The broker's own lock time.
    semel_broker.skip(30.0)
    assert bob.got() == []
    semel_broker.skip(30.0)
    assert bob.got(max_wait_ms=30_000) == [(0, 0, 2)]


def test_a_lock_that_is_shorter_than_those_before_it_times_out_first(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=2)
    configure(ask, record_lock_duration_ms="60000")
    assert ada.got(max_records=1) == [(0, 0, 1)]
    configure(ask, record_lock_duration_ms="15000")
    bob = another(ada, "bob")
    assert bob.got(max_records=1) == [(1, 1, 1)]
    semel_broker.skip(15.0)
    assert ada.got(max_wait_ms=30_000) == [(1, 1, 2)]


def test_a_lost_connection_releases_what_its_members_of_all_groups_hold(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=1)
    configure(ask, "others", auto_offset_reset="earliest")
    cleo = Sharer(ask, ada.topic_id, "cleo", "others")
    with Asker(semel_broker.bootstrap) as other:
        for group in ("workers", "others"):
            bob = Sharer(other, ada.topic_id, "bob", group)
            assert bob.beat(0, "jobs").error_code == 0
            assert bob.got() == [(0, 0, 1)]
    assert ada.got(max_wait_ms=20_000) == [(0, 0, 2)]
    assert cleo.beat(0, "jobs").error_code == 0
    assert cleo.got(max_wait_ms=20_000) == [(0, 0, 2)]


def test_a_group_begins_as_long_ago_as_it_says(ask: Asker) -> None:
    topic, now_ms = ask.create("jobs"), round(time.time() * 1000)
    for time_ms in (1_000, now_ms, now_ms + 1):
        ask.produce("jobs", at(time_ms))
    configure(ask, auto_offset_reset="by_duration:PT1H")
    ada = Sharer(ask, topic.topic_id)
    ada.beat(0, "jobs")
    assert ada.got() == [(1, 2, 1)]


def test_a_session_for_whose_partitions_there_is_no_space_leaves_its_place_to_others() -> None:
    limits = Limits(share_sessions_max=2, share_session_partitions_max=2)
    with FaultyBroker(limits=limits) as broker, Asker(broker.bootstrap) as ask:
        ada = wide_sharer(ask, records=1)
        assert ada.fetch(topics=ada.named()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert another(ada, "bob").got() == [(0, 0, 1)]
