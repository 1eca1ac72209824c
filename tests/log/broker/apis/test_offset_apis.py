"""Groups commit, ask for and forget offsets over the wire, in every version, and hear what is wrong with each."""

from collections.abc import Iterable
from typing import Any

import pytest

from asking import Asker, ConnectionEnded
from semel.log.broker.apis import APIS
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    DELETE_TOPICS,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)

TOPIC_IDS_FROM = 10
GROUPS_FROM = 8
NOTHING = (0, -1, -1, "")

COMMIT_VERSIONS = APIS[OFFSET_COMMIT].served
FETCH_VERSIONS = APIS[OFFSET_FETCH].served
TXN_VERSIONS = APIS[TXN_OFFSET_COMMIT].served


def partition(index: int, offset: int, metadata: str | None = None, leader_epoch: int = -1) -> dict[str, object]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": leader_epoch,
        "committed_metadata": metadata,
    }


def commit(
    ask: Asker,
    *partitions: dict[str, object],
    version: int = 9,
    group: str = "readers",
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    **options: object,
) -> list[int]:
    """The error code of each partition."""
    fields = {"member_id": "", "generation_id_or_member_epoch": -1, **options}
    topics = [{"name": topic, "topic_id": topic_id, "partitions": partitions}]
    answer = ask(OFFSET_COMMIT, version, group_id=group, topics=topics, **fields)
    return [int(one.error_code) for one in answer.topics[0].partitions]


def fetched(
    ask: Asker,
    indexes: Iterable[int] | None,
    *,
    version: int = 9,
    group: str = "readers",
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    stable: bool = False,
) -> dict[int, tuple[int, int, int, str | None]]:
    """Error code, offset, leader epoch and metadata of each partition; no indexes for all that there are."""
    topics = None if indexes is None else [{"name": topic, "topic_id": topic_id, "partition_indexes": tuple(indexes)}]
    asked = {"group_id": group, "topics": topics}
    answer = ask(OFFSET_FETCH, version, **asked, groups=[asked], require_stable=stable)
    of_group = answer.groups[0] if version >= GROUPS_FROM else answer
    if version > 1:
        assert of_group.error_code == 0
    return {
        one.partition_index: (
            int(one.error_code),
            one.committed_offset,
            getattr(one, "committed_leader_epoch", -1),
            one.metadata,
        )
        for found in of_group.topics
        for one in found.partitions
    }


def offset_of(ask: Asker, index: int = 0, **options: Any) -> int:
    return fetched(ask, [index], **options)[index][1]


def forget(ask: Asker, *indexes: int, group: str = "readers", topic: str = "orders") -> Any:
    partitions = [{"partition_index": index} for index in indexes]
    return ask(OFFSET_DELETE, group_id=group, topics=[{"name": topic, "partitions": partitions}])


def forgotten(answer: Any) -> list[int]:
    assert answer.error_code == 0
    return [int(one.error_code) for one in answer.topics[0].partitions]


# Committing


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_an_offset_is_committed_in_every_version_and_survives_a_kill(
    version: int, ask: Asker, semel_broker: FaultyBroker
) -> None:
    topic_id = ask.create("orders", 2).topic_id
    assert commit(ask, partition(0, 5, "note", 3), partition(1, 7), version=version, topic_id=topic_id) == [0, 0]
    leader_epoch = 3 if version >= 6 else -1
    for _ in range(2):
        assert fetched(ask, [0, 1]) == {0: (0, 5, leader_epoch, "note"), 1: (0, 7, -1, "")}
        semel_broker.kill()
        semel_broker.restart()
        ask = Asker(semel_broker.bootstrap)
    ask.close()


def test_offsets_survive_an_orderly_restart(ask: Asker, semel_broker: FaultyBroker) -> None:
    ask.create("orders")
    commit(ask, partition(0, 5, "note"))
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert fetched(again, [0]) == {0: (0, 5, -1, "note")}
    again.close()


def test_of_a_partition_that_is_committed_twice_at_once_the_last_counts(ask: Asker) -> None:
    ask.create("orders")
    assert commit(ask, partition(0, 5), partition(0, 6)) == [0, 0]
    assert offset_of(ask) == 6


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_what_cannot_be_committed_does_not_keep_the_rest_out(version: int, ask: Asker) -> None:
    topic_id = ask.create("orders").topic_id
    wishes = (partition(0, 5), partition(1, 5), partition(-1, 5))
    expected = [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(ask, *wishes, version=version, topic_id=topic_id) == expected
    long, longest = "x" * 4097, "x" * 4096
    assert commit(ask, partition(0, 6, long), version=version, topic_id=topic_id) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert commit(ask, partition(0, 7, longest), version=version, topic_id=topic_id) == [0]
    assert fetched(ask, [0]) == {0: (0, 7, -1, longest)}
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(ask, partition(0, 5), version=version, topic="none", topic_id=bytes(15) + b"1") == [unknown]
    assert commit(ask, version=version, topic_id=topic_id) == []


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_who_says_to_be_a_member_of_a_group_without_members_is_refused(version: int, ask: Asker) -> None:
    topic_id = ask.create("orders").topic_id
    member: dict[str, Any] = {"member_id": "m1", "generation_id_or_member_epoch": 3}
    member |= {"version": version, "topic_id": topic_id}
    not_there = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert commit(ask, partition(0, 5), **member) == [not_there]
    assert commit(ask, partition(0, 4), version=version, topic_id=topic_id) == [0]
    assert commit(ask, partition(0, 5), **member) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert offset_of(ask) == 4


def test_a_group_may_have_an_empty_name(ask: Asker) -> None:
    ask.create("orders")
    assert commit(ask, partition(0, 5), group="") == [0]
    assert offset_of(ask, group="") == 5


def test_groups_keep_their_offsets_apart(ask: Asker) -> None:
    ask.create("orders")
    commit(ask, partition(0, 5))
    commit(ask, partition(0, 6), group="writers")
    assert (offset_of(ask), offset_of(ask, group="writers"), offset_of(ask, group="none")) == (5, 6, -1)


# Asking


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_offsets_are_shown_in_every_version(version: int, ask: Asker) -> None:
    topic_id = ask.create("orders", 3).topic_id
    commit(ask, partition(0, 5, "note", 3), partition(1, 7))
    leader_epoch = 3 if version >= 5 else -1
    found = fetched(ask, [0, 1, 2, 9, 0], version=version, topic_id=topic_id)
    assert found == {0: (0, 5, leader_epoch, "note"), 1: (0, 7, -1, ""), 2: NOTHING, 9: NOTHING}
    assert fetched(ask, [0], version=version, topic_id=topic_id, group="none") == {0: NOTHING}
    unknown = (ErrorCode.UNKNOWN_TOPIC_ID, *NOTHING[1:]) if version >= TOPIC_IDS_FROM else NOTHING
    assert fetched(ask, [0], version=version, topic="none", topic_id=bytes(15) + b"1") == {0: unknown}


@pytest.mark.parametrize("version", range(2, FETCH_VERSIONS.stop))
def test_all_offsets_of_a_group_are_shown_to_who_asks_for_none(version: int, ask: Asker) -> None:
    ask.create("orders", 3)
    ask.create("payments")
    commit(ask, partition(0, 5), partition(2, 7))
    commit(ask, partition(0, 9), topic="payments")
    asked = {"group_id": "readers", "topics": None}
    answer = ask(OFFSET_FETCH, version, **asked, groups=[asked], require_stable=False)
    of_group = answer.groups[0] if version >= GROUPS_FROM else answer
    offsets = [[one.committed_offset for one in topic.partitions] for topic in of_group.topics]
    assert sorted(offsets) == [[5, 7], [9]]
    if version < TOPIC_IDS_FROM:
        assert {topic.name for topic in of_group.topics} == {"orders", "payments"}
    assert fetched(ask, None, version=version, group="none") == {}


def test_several_groups_are_answered_at_once_and_each_once(ask: Asker) -> None:
    ask.create("orders")
    commit(ask, partition(0, 5))
    commit(ask, partition(0, 6), group="writers")
    groups = [{"group_id": name, "topics": None} for name in ("writers", "readers", "writers", "none")]
    answer = ask(OFFSET_FETCH, 9, groups=groups, require_stable=False)
    found = [
        (group.group_id, [one.committed_offset for topic in group.topics for one in topic.partitions])
        for group in answer.groups
    ]
    assert found == [("writers", [6]), ("readers", [5]), ("none", [])]


def test_the_offsets_of_a_deleted_topic_are_not_those_of_its_namesake(ask: Asker) -> None:
    old_id = ask.create("orders").topic_id
    commit(ask, partition(0, 5))
    ask(DELETE_TOPICS, topics=[{"name": "orders", "topic_id": bytes(16)}], timeout_ms=1000)
    assert fetched(ask, None) == {}
    ask.create("orders")
    assert offset_of(ask) == -1
    assert commit(ask, partition(0, 6), version=10, topic_id=old_id) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert fetched(ask, [0], version=10, topic_id=old_id) == {0: (ErrorCode.UNKNOWN_TOPIC_ID, *NOTHING[1:])}


# Forgetting


def test_offsets_are_forgotten_on_request_for_good(ask: Asker, semel_broker: FaultyBroker) -> None:
    ask.create("orders", 2)
    commit(ask, partition(0, 5), partition(1, 6))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert forgotten(forget(ask, 0, 9)) == [0, unknown]
    assert forgotten(forget(ask, 0)) == [0]
    assert forgotten(forget(ask, 0, topic="none")) == [unknown]
    semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert fetched(again, None) == {1: (0, 6, -1, "")}
    again.close()


def test_a_group_that_is_not_there_forgets_nothing(ask: Asker) -> None:
    ask.create("orders")
    assert forget(ask, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert forget(ask, 0, group="").error_code == ErrorCode.INVALID_GROUP_ID


# In transactions


class Transaction:
    """A producer with a transactional id, for the offsets of the group `readers`."""

    def __init__(self, ask: Asker, name: str = "copier", *, version: int = 5) -> None:
        self._ask = ask
        self._name = name
        self.version = version
        begun = ask(
            INIT_PRODUCER_ID, transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        assert begun.error_code == 0
        self.producer_id, self.epoch = begun.producer_id, begun.producer_epoch

    def _ids(self) -> dict[str, object]:
        return {"transactional_id": self._name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add_group(self, group: str = "readers") -> None:
        assert self._ask(ADD_OFFSETS_TO_TXN, **self._ids(), group_id=group).error_code == 0

    def commit(self, *partitions: dict[str, object], topic: str = "orders", group: str = "readers", **who: Any) -> Any:
        """The error code of each partition. Up to version 4 the group has to be announced, and is."""
        topics = [{"name": topic, "partitions": partitions}]
        fields = {"generation_id": -1, "member_id": "", "group_instance_id": None, **self._ids(), **who}
        answer = self._ask(TXN_OFFSET_COMMIT, self.version, group_id=group, topics=topics, **fields)
        return [int(one.error_code) for one in answer.topics[0].partitions]

    def begin(self) -> "Transaction":
        if self.version < 5:
            self.add_group()
        return self

    def end(self, *, committed: bool) -> None:
        answer = self._ask(END_TXN, 5 if self.version >= 5 else 3, **self._ids(), committed=committed)
        assert answer.error_code == 0
        if self.version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", TXN_VERSIONS)
def test_offsets_of_a_transaction_are_there_when_its_commit_is_answered(version: int, ask: Asker) -> None:
    """KAFKA-17507: whoever was told that the transaction is committed sees the group where it has got to."""
    ask.create("orders", 2)
    transaction = Transaction(ask, version=version)
    for offset in range(1, 20):
        transaction.begin()
        assert transaction.commit(partition(0, offset), partition(1, 10 * offset, "note")) == [0, 0]
        assert offset_of(ask) == (offset - 1 or -1)
        transaction.end(committed=True)
        assert fetched(ask, [0, 1], stable=True) == {0: (0, offset, -1, ""), 1: (0, 10 * offset, -1, "note")}


@pytest.mark.parametrize("version", TXN_VERSIONS)
def test_offsets_of_an_aborted_transaction_are_never_there(
    version: int, ask: Asker, semel_broker: FaultyBroker
) -> None:
    ask.create("orders")
    commit(ask, partition(0, 3))
    transaction = Transaction(ask, version=version).begin()
    assert transaction.commit(partition(0, 5)) == [0]
    transaction.end(committed=False)
    assert fetched(ask, [0], stable=True) == {0: (0, 3, -1, "")}
    semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert fetched(again, [0], stable=True) == {0: (0, 3, -1, "")}
    again.close()


@pytest.mark.parametrize("version", range(7, FETCH_VERSIONS.stop))
def test_who_wants_stable_offsets_is_told_to_wait_while_a_transaction_may_move_them(version: int, ask: Asker) -> None:
    topic_id = ask.create("orders", 2).topic_id
    commit(ask, partition(0, 3), partition(1, 4))
    transaction = Transaction(ask)
    transaction.commit(partition(0, 5))
    where: dict[str, Any] = {"version": version, "topic_id": topic_id}
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, *NOTHING[1:])
    for indexes in ((0, 1), None):
        assert fetched(ask, indexes, stable=True, **where) == {0: unstable, 1: (0, 4, -1, "")}
    assert offset_of(ask, **where) == 3
    transaction.end(committed=True)
    assert fetched(ask, [0], stable=True, **where) == {0: (0, 5, -1, "")}


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_pending_offsets_survive_the_broker_and_wait_for_the_end(
    kill: bool, committed: bool, ask: Asker, semel_broker: FaultyBroker
) -> None:
    ask.create("orders")
    transaction = Transaction(ask)
    transaction.commit(partition(0, 5))
    if kill:
        semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert fetched(again, [0], stable=True)[0][0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    transaction._ask = again
    transaction.end(committed=committed)
    assert offset_of(again, stable=True) == (5 if committed else -1)
    again.close()


def test_a_newcomer_with_the_same_transactional_id_aborts_what_was_pending(ask: Asker) -> None:
    ask.create("orders")
    zombie = Transaction(ask)
    zombie.commit(partition(0, 5))
    newcomer = Transaction(ask)
    assert offset_of(ask, stable=True) == -1
    assert zombie.commit(partition(0, 6)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert newcomer.commit(partition(0, 7)) == [0]
    newcomer.end(committed=True)
    assert offset_of(ask, stable=True) == 7


@pytest.mark.parametrize("version", TXN_VERSIONS)
def test_who_does_not_own_the_transactional_id_commits_nothing(version: int, ask: Asker) -> None:
    ask.create("orders")
    transaction = Transaction(ask, version=version).begin()
    stranger: dict[str, Any] = {"producer_id": transaction.producer_id + 1}
    assert transaction.commit(partition(0, 5), **stranger) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert transaction.commit(partition(0, 5), transactional_id="none") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert transaction.commit(partition(0, 5), producer_epoch=9) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert transaction.commit(partition(0, 5), group="") == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize("version", range(5))
def test_before_version_5_a_group_has_to_be_announced(version: int, ask: Asker) -> None:
    ask.create("orders")
    transaction = Transaction(ask, version=version)
    refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert transaction.commit(partition(0, 5)) == [refused]
    transaction.add_group("writers")
    assert transaction.commit(partition(0, 5)) == [refused]
    transaction.add_group()
    assert transaction.commit(partition(0, 5)) == [0]


@pytest.mark.parametrize("version", range(5))
def test_offsets_on_a_connection_that_was_given_up_do_not_get_into_a_later_transaction(
    version: int, ask: Asker, semel_broker: FaultyBroker
) -> None:
    """Before version 5 they do not say to which transaction they belong."""
    ask.create("orders")
    again = Asker(semel_broker.bootstrap)
    transaction = Transaction(again, version=version).begin()
    assert transaction.commit(partition(0, 5)) == [0]
    transaction.end(committed=True)
    transaction.begin()
    assert transaction.commit(partition(0, 9)) == [0]
    transaction._ask = ask
    with pytest.raises(ConnectionEnded):
        transaction.commit(partition(0, 3))
    transaction._ask = again
    transaction.end(committed=True)
    assert offset_of(again) == 9
    again.close()


@pytest.mark.parametrize("version", range(5))
def test_offsets_may_come_over_another_connection_than_the_end(
    version: int, ask: Asker, semel_broker: FaultyBroker
) -> None:
    """Clients keep one for the coordinator of transactions and one for that of groups, opened in any order."""
    ask.create("orders")
    later = Asker(semel_broker.bootstrap)
    transaction = Transaction(later, version=version)
    for offset in range(3):
        transaction.begin()
        transaction._ask = ask
        assert transaction.commit(partition(0, offset)) == [0]
        transaction._ask = later
        transaction.end(committed=True)
    assert offset_of(ask) == 2
    later.close()


@pytest.mark.parametrize("version", range(3, 6))
def test_a_member_that_is_none_commits_nothing_in_a_transaction(version: int, ask: Asker) -> None:
    ask.create("orders")
    transaction = Transaction(ask, version=version).begin()
    member: dict[str, Any] = {"generation_id": 3, "member_id": "m1"}
    assert transaction.commit(partition(0, 5), **member) == [ErrorCode.ILLEGAL_GENERATION]
    commit(ask, partition(0, 1))
    assert transaction.commit(partition(0, 5), **member) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert offset_of(ask, stable=True) == 1


@pytest.mark.parametrize("version", TXN_VERSIONS)
def test_what_cannot_be_committed_in_a_transaction_does_not_keep_the_rest_out(version: int, ask: Asker) -> None:
    ask.create("orders")
    transaction = Transaction(ask, version=version).begin()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert transaction.commit(partition(0, 5), partition(1, 5)) == [0, unknown]
    assert transaction.commit(partition(0, 5), topic="none") == [unknown]
    assert transaction.commit(partition(0, 6, "x" * 4097)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    transaction.end(committed=True)
    assert offset_of(ask) == 5
