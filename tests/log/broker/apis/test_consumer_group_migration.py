"""Groups that go from one protocol to the other, as the protocol shows it: who waits is told, and nothing is lost."""

from typing import Any

from asking import Asker
from semel.log.broker.limits import Limits
from semel.log.core.groups.consumer_protocol import read_assignment, write_assignment
from semel.testing.broker import FaultyBroker
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)

# The first version of JoinGroup lets a member in without having told it an id.
JOIN_VERSION = 2
# A subscription to "orders" in the version that all clients know.
METADATA = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\xff\xff\xff\xff"


def joining(member_id: str, protocol_type: str = "consumer") -> dict[str, object]:
    return {
        "group_id": "readers",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": METADATA}],
    }


def join_classic(ask: Asker, member_id: str = "", protocol_type: str = "consumer", **said: Any) -> Any:
    return ask(JOIN_GROUP, JOIN_VERSION, **{**joining(member_id, protocol_type), **said})


def sync(ask: Asker, member: Any, assignments: list[dict[str, object]] | None = None) -> Any:
    return ask(
        SYNC_GROUP,
        1,
        group_id="readers",
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=assignments or [],
    )


def classic_group(ask: Asker, **said: Any) -> Any:
    """The only member of a classic group, which reads everything."""
    member = join_classic(ask, **said)
    everything = write_assignment([("orders", (0, 1))])
    sync(ask, member, [{"member_id": member.member_id, "assignment": everything}])
    return member


def beat(ask: Asker, member_id: str, epoch: int, **said: Any) -> Any:
    return ask(
        CONSUMER_GROUP_HEARTBEAT,
        1,
        **{"group_id": "readers", "member_id": member_id, "member_epoch": epoch, "topic_partitions": None, **said},
    )


def join_new(ask: Asker, member_id: str) -> Any:
    return beat(ask, member_id, 0, rebalance_timeout_ms=1000, subscribed_topic_names=["orders"], topic_partitions=[])


def heartbeat(ask: Asker, member: Any) -> Any:
    return ask(HEARTBEAT, 1, group_id="readers", generation_id=member.generation_id, member_id=member.member_id)


def group_type(ask: Asker) -> str:
    (listed,) = ask(LIST_GROUPS, states_filter=[], types_filter=[]).groups
    return str(listed.group_type)


def test_a_group_goes_over_with_its_members_and_goes_back_without_the_new_one(
    semel_broker: FaultyBroker, ask: Asker
) -> None:
    ask.create("orders", partitions=2)
    member = classic_group(ask)
    assert join_new(ask, "n").member_epoch == 2
    assert group_type(ask) == "consumer"
    assert heartbeat(ask, member).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    member = join_classic(ask, member.member_id)
    assert (member.error_code, member.generation_id, member.leader) == (0, 2, "")
    assert read_assignment(sync(ask, member).assignment) == {"orders": (0,)}
    assert beat(ask, "n", 2).assignment.topic_partitions[0].partitions == (1,)
    semel_broker.kill()
    semel_broker.start()
    ask = Asker(semel_broker.bootstrap)
    assert heartbeat(ask, member).error_code == 0
    (group,) = ask(CONSUMER_GROUP_DESCRIBE, group_ids=["readers"], include_authorized_operations=False).groups
    assert {(one.member_id, one.member_type) for one in group.members} == {(member.member_id, 0), ("n", 1)}
    beat(ask, "n", -1)
    assert group_type(ask) == "classic"
    member = join_classic(ask, member.member_id)
    assert member.generation_id > 2
    assert member.leader == member.member_id
    ask.close()


def test_members_of_a_group_that_went_back_join_again_even_if_the_broker_was_killed_in_between(
    semel_broker: FaultyBroker, ask: Asker
) -> None:
    ask.create("orders", partitions=2)
    member = classic_group(ask)
    join_new(ask, "n")
    member = join_classic(ask, member.member_id)
    assert read_assignment(sync(ask, member).assignment) == {"orders": (0,)}
    beat(ask, "n", -1)
    semel_broker.kill()
    semel_broker.start()
    ask = Asker(semel_broker.bootstrap)
    assert heartbeat(ask, member).error_code == ErrorCode.REBALANCE_IN_PROGRESS, "or nobody would read partition 1"
    member = join_classic(ask, member.member_id)
    assert member.leader == member.member_id
    ask.close()


def test_who_was_told_an_id_and_has_not_come_back_keeps_nobody_out_of_the_new_protocol(ask: Asker) -> None:
    ask.create("orders")
    told = ask(JOIN_GROUP, 5, **joining(""))
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert join_new(ask, "n").error_code == 0
    assert ask(JOIN_GROUP, 5, **joining(told.member_id)).error_code == 0
    assert group_type(ask) == "consumer"


def test_who_waits_in_a_group_that_goes_over_joins_anew(semel_broker: FaultyBroker, ask: Asker) -> None:
    ask.create("orders", partitions=2)
    classic_group(ask)
    waiting = Asker(semel_broker.bootstrap)
    joined = waiting.ask_later(JOIN_GROUP, JOIN_VERSION, **joining(""))
    while not ask(LIST_GROUPS, states_filter=["preparingrebalance"], types_filter=[]).groups:
        pass
    assert join_new(ask, "n").error_code == 0
    answer = joined()
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert join_classic(waiting, answer.member_id).error_code == 0
    waiting.close()


def test_a_classic_member_is_heard_when_it_asks_for_its_share() -> None:
    with FaultyBroker() as broker, Asker(broker.bootstrap) as ask:
        ask.create("orders", partitions=2)
        member = classic_group(ask)
        join_new(ask, "n")
        member = join_classic(ask, member.member_id)
        for _ in range(2):
            broker.skip(6)
            assert sync(ask, member).error_code == 0
        assert heartbeat(ask, member).error_code == 0


def test_a_classic_member_that_only_says_it_is_there_has_its_rebalance_timeout_to_join_again() -> None:
    """Nobody else would ever read what it has to give up."""
    with FaultyBroker() as broker, Asker(broker.bootstrap) as ask:
        ask.create("orders", partitions=2)
        member = classic_group(ask, rebalance_timeout_ms=20_000)
        join_new(ask, "n")
        told = []
        for _ in range(5):
            told.append(heartbeat(ask, member).error_code)
            broker.skip(6)
        assert told == [*[ErrorCode.REBALANCE_IN_PROGRESS] * 4, ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_of_others_than_consumers_takes_no_new_member_in(ask: Asker) -> None:
    ask.create("orders")
    join_classic(ask, protocol_type="connect")
    assert join_new(ask, "n").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group_type(ask) == "classic"


def test_classic_members_leave_a_group_of_both(ask: Asker) -> None:
    ask.create("orders", partitions=2)
    member = classic_group(ask)
    join_new(ask, "n")
    assert ask(LEAVE_GROUP, 1, group_id="readers", member_id=member.member_id).error_code == 0
    assert beat(ask, "n", 2).assignment.topic_partitions[0].partitions == (0, 1)
    assert ask(LEAVE_GROUP, 1, group_id="readers", member_id="n").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(ask, member).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def second_entry_refused(files: FaultyFiles) -> None:
    files.arm(Fault("EIO", at=len(files.calls) + 1, call="write", path="journal/*"))


def test_who_falls_silent_is_missed_where_the_group_went_over_and_the_newcomer_could_not_be_kept() -> None:
    files = FaultyFiles()
    with FaultyBroker(files=files, limits=Limits(group_session_timeout_ms_min=1_000)) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders", partitions=2)
        classic_group(ask, session_timeout_ms=1_000)
        second_entry_refused(files)
        assert join_new(ask, "n").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert group_type(ask) == "consumer"
        while ask(LIST_GROUPS, states_filter=["empty"], types_filter=[]).groups == ():
            pass
        ask.close()


def test_a_member_has_left_even_where_the_disk_does_not_let_its_group_go_back_at_once() -> None:
    files = FaultyFiles()
    with FaultyBroker(files=files) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders", partitions=2)
        member = classic_group(ask)
        join_new(ask, "n")
        second_entry_refused(files)
        assert beat(ask, "n", -1).error_code == 0
        assert group_type(ask) == "consumer"
        assert heartbeat(ask, member).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert join_classic(ask, member.member_id).error_code == 0
        assert group_type(ask) == "classic"
        ask.close()


def test_a_group_without_members_is_of_the_protocol_of_its_next_one(ask: Asker) -> None:
    ask.create("orders")
    member = join_classic(ask)
    ask(LEAVE_GROUP, 1, group_id="readers", member_id=member.member_id)
    join_new(ask, "n")
    assert group_type(ask) == "consumer"
    beat(ask, "n", -1)
    assert join_classic(ask).error_code == 0
    assert group_type(ask) == "classic"
