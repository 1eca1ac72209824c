"""The classic group protocol over the wire: what waits is answered, what was promised survives, the rest is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from asking import Asker
from semel.log.broker.exposition import exposition
from semel.log.broker.limits import Limits
from semel.log.core.entries import ClassicGroupChanged, Entry
from semel.log.core.state import Holder, State
from semel.testing.broker import FaultyBroker
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    SYNC_GROUP,
)

SESSION_MS = 6_000
# Of a subscription to the topic `orders`.
ORDERS = bytes([0, 0, 0, 0, 0, 1, 0, 6]) + b"orders"


class Member:
    """A consumer with a connection of its own."""

    def __init__(self, bootstrap: str, group: str = "tills", instance_id: str | None = None) -> None:
        self.ask = Asker(bootstrap)
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def post(self, api_key: int, version: int, **fields: object) -> Callable[[], Any]:
        """Send a request; call what is returned to wait for the answer."""
        who = {"group_id": self.group, "group_instance_id": self.instance_id}
        return self.ask.ask_later(api_key, version, **who, **fields)

    def post_join(self, version: int = 9, **fields: object) -> Callable[[], Any]:
        wish: dict[str, object] = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": ORDERS}],
            "reason": None,
            "member_id": self.member_id,
        }
        return self.post(JOIN_GROUP, version, **{**wish, **fields})

    def join(self, version: int = 9) -> Any:
        """Join as far as that goes without others."""
        answer = self.post_join(version)()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.post_join(version)()
        return self.take(answer)

    def take(self, answer: Any) -> Any:
        assert answer.error_code == ErrorCode.NONE
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def post_sync(self, assignments: dict[str, bytes] | None = None) -> Callable[[], Any]:
        return self.post(
            SYNC_GROUP,
            5,
            member_id=self.member_id,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": one, "assignment": share} for one, share in (assignments or {}).items()],
        )

    def heartbeat(self) -> int:
        answer = self.post(HEARTBEAT, 4, member_id=self.member_id, generation_id=self.generation)()
        return int(answer.error_code)

    def leave(self) -> Any:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance_id, "reason": None}]
        request = {"group_id": self.group, "members": members}
        return self.ask(LEAVE_GROUP, 5, **request).members[0]

    def close(self) -> None:
        self.ask.close()


@pytest.fixture
def members(semel_broker: FaultyBroker) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(**options: Any) -> Member:
        made.append(Member(semel_broker.bootstrap, **options))
        return made[-1]

    yield make
    for member in made:
        member.close()


@pytest.fixture
def pair(members: Callable[..., Member]) -> tuple[Member, Member]:
    """A leader and a follower, each with its assignment."""
    leader, follower = members(), members()
    leader.join()
    told = follower.post_join()()
    follower.member_id = told.member_id
    joining = follower.post_join()
    leader.join()
    follower.take(joining())
    waiting = follower.post_sync()
    assert leader.post_sync({leader.member_id: b"0", follower.member_id: b"1"})().assignment == b"0"
    assert waiting().assignment == b"1"
    return leader, follower


def test_what_befalls_groups_is_counted() -> None:
    with FaultyBroker() as broker:
        leader = Member(broker.bootstrap)
        leader.join()
        leader.post_sync()()
        shown = exposition(broker._broker).splitlines()
        leader.close()
    assert 'semel_groups_with_members{state="Stable"} 1' in shown
    assert 'semel_group_events_total{event="group_rebalanced"} 1' in shown


def describe(ask: Asker, group: str = "tills", version: int = 6) -> Any:
    (described,) = ask(DESCRIBE_GROUPS, version, groups=[group], include_authorized_operations=False).groups
    return described


def test_two_members_share_what_the_leader_hands_out(pair: tuple[Member, Member], ask: Asker) -> None:
    described = describe(ask)
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [member.member_assignment for member in described.members] == [b"0", b"1"]
    assert {member.member_metadata for member in described.members} == {ORDERS}
    assert {(member.client_id, member.client_host) for member in described.members} == {("asker", "/127.0.0.1")}


def test_a_sync_waits_for_the_leader(members: Callable[..., Member]) -> None:
    leader, follower = members(), members()
    leader.join()
    follower.member_id = follower.post_join()().member_id
    joining = follower.post_join()
    leader.join()
    follower.take(joining())
    waiting = follower.post_sync()
    assert leader.heartbeat() == ErrorCode.NONE
    assert not follower.ask.has_answer()
    leader.post_sync({follower.member_id: b"1"})()
    assert waiting().assignment == b"1"


def test_a_sync_that_could_name_the_protocol_has_to(pair: tuple[Member, Member]) -> None:
    member = pair[0]
    fields: dict[str, object] = {"member_id": member.member_id, "generation_id": member.generation, "assignments": []}
    nameless = member.post(SYNC_GROUP, 5, protocol_type=None, protocol_name=None, **fields)()
    assert nameless.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.post(SYNC_GROUP, 4, **fields)().assignment == b"0"


def test_who_leaves_makes_room_for_the_others_at_once(pair: tuple[Member, Member]) -> None:
    leader, follower = pair
    assert leader.leave().error_code == ErrorCode.NONE
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().leader == follower.member_id


def test_whoever_waits_hears_of_a_generation_that_cannot_follow_on_what_is_there(
    semel_broker: FaultyBroker, pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait for ever: nobody comes back to a step that broke off."""
    leader, follower = pair
    # What comes over one connection is served in its order.
    follower.close()
    follower.ask = leader.ask
    check = State.check

    def slip(state: State[Holder], entry: Entry) -> None:
        if isinstance(entry, ClassicGroupChanged):
            raise ValueError("no such generation")
        check(state, entry)

    monkeypatch.setattr(State, "check", slip)
    joins = [member.post_join(member_id=member.member_id) for member in pair]
    for member, joined in zip(pair, joins, strict=True):
        member.take(joined())
    waiting = [follower.post_sync(), leader.post_sync({leader.member_id: b"all", follower.member_id: b"none"})]
    assert [answer().error_code for answer in waiting] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    monkeypatch.undo()
    joins = [member.post_join(member_id=member.member_id) for member in pair]
    for member, joined in zip(pair, joins, strict=True):
        member.take(joined())
    waiting = [follower.post_sync(), leader.post_sync({leader.member_id: b"all", follower.member_id: b"none"})]
    assert [answer().assignment for answer in waiting] == [b"none", b"all"]


def test_a_restart_of_the_broker_costs_no_rebalance(semel_broker: FaultyBroker, pair: tuple[Member, Member]) -> None:
    for end in (semel_broker.stop, semel_broker.kill):
        end()
        semel_broker.start()
        for member, assignment in zip(pair, (b"0", b"1"), strict=True):
            member.close()
            member.ask = Asker(semel_broker.bootstrap)
            assert member.heartbeat() == ErrorCode.NONE
            assert member.post_sync()().assignment == assignment


def test_who_waits_when_the_broker_stops_is_told_to_ask_again(
    semel_broker: FaultyBroker, pair: tuple[Member, Member], members: Callable[..., Member]
) -> None:
    newcomer = members()
    newcomer.member_id = newcomer.post_join()().member_id
    joining = newcomer.post_join()
    assert pair[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    semel_broker.stop()
    assert joining().error_code == ErrorCode.NOT_COORDINATOR
    semel_broker.start()


def test_a_static_member_that_starts_again_finds_its_assignment(
    semel_broker: FaultyBroker, members: Callable[..., Member], ask: Asker
) -> None:
    first = members(instance_id="till-1")
    first.join()
    first.post_sync({first.member_id: b"all"})()
    second = members(instance_id="till-1")
    joined = second.join()
    assert (joined.generation_id, joined.skip_assignment) == (first.generation, True)
    assert second.post_sync()().assignment == b"all"
    assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    semel_broker.restart()
    second.ask = Asker(semel_broker.bootstrap)
    assert second.heartbeat() == ErrorCode.NONE, "its new id is known to the next process too"


def test_a_static_member_is_removed_by_an_administrator(members: Callable[..., Member], ask: Asker) -> None:
    members(instance_id="till-1").join()
    leaving = [{"member_id": "", "group_instance_id": name, "reason": None} for name in ("till-1", "till-2")]
    left = ask(LEAVE_GROUP, 3, group_id="tills", members=leaving).members
    assert [member.error_code for member in left] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("session_ms", [SESSION_MS - 1, 1_800_001, -1])
def test_a_session_has_bounds(members: Callable[..., Member], ask: Asker, session_ms: int) -> None:
    answer = members().post_join(session_timeout_ms=session_ms)()
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert ask(LIST_GROUPS).groups == (), "nothing is left of a group that nobody could join"


def test_a_group_has_a_name(members: Callable[..., Member], ask: Asker) -> None:
    nameless = members(group="")
    assert nameless.post_join()().error_code == ErrorCode.INVALID_GROUP_ID
    assert nameless.post_sync()().error_code == ErrorCode.INVALID_GROUP_ID
    assert nameless.heartbeat() == ErrorCode.INVALID_GROUP_ID
    for version in (0, 3, 5):
        leaving: dict[str, Any] = {"group_id": "", "member_id": "m", "members": []}
        assert ask(LEAVE_GROUP, version, **leaving).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", [0, 2, 5])
def test_nobody_leaves_a_group_that_is_not_there(ask: Asker, version: int) -> None:
    members = [{"member_id": "m", "group_instance_id": None, "reason": None}]
    answer = ask(LEAVE_GROUP, version, group_id="none", member_id="m", members=members)
    told = answer.members[0] if version >= 3 else answer
    assert told.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_a_group_that_is_not_there_is_unknown(members: Callable[..., Member]) -> None:
    lost = members()
    lost.member_id, lost.generation = "till-0", 3
    assert lost.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert lost.post_sync()().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert lost.post_join()().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_not_there_is_described_as_dead_and_to_newer_clients_as_missing(ask: Asker) -> None:
    assert (describe(ask, version=5).error_code, describe(ask, version=5).group_state) == (0, "Dead")
    missing = describe(ask)
    assert (missing.error_code, missing.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "tills" in missing.error_message


def test_groups_are_listed_by_state_and_type(pair: tuple[Member, Member], members: Callable[..., Member]) -> None:
    ask = pair[0].ask
    lonely = members(group="lonely")
    lonely.join()
    lonely.leave()
    assert names(ask(LIST_GROUPS, states_filter=[], types_filter=[])) == {"tills": "Stable", "lonely": "Empty"}
    assert names(ask(LIST_GROUPS, states_filter=["STABLE"], types_filter=["Classic"])) == {"tills": "Stable"}
    assert names(ask(LIST_GROUPS, states_filter=[], types_filter=["consumer"])) == {}
    assert {group.protocol_type for group in ask(LIST_GROUPS, 0).groups} == {"consumer"}


def names(listed: Any) -> dict[str, str]:
    return {group.group_id: group.group_state for group in listed.groups}


def test_a_group_is_deleted_once_its_members_have_left(pair: tuple[Member, Member], ask: Asker) -> None:
    assert deleted(ask) == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    for member in pair:
        member.leave()
    assert deleted(ask) == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert describe(ask).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def deleted(ask: Asker) -> list[int]:
    return [result.error_code for result in ask(DELETE_GROUPS, groups_names=["tills", "none", "tills"]).results]


def test_who_is_of_an_earlier_generation_commits_nothing(pair: tuple[Member, Member], ask: Asker) -> None:
    ask.create("orders")
    leader, follower = pair
    rejoining = leader.post_join()
    while follower.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    follower.join()
    leader.take(rejoining())
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": ""}]
    for generation, error in ((follower.generation - 1, ErrorCode.ILLEGAL_GENERATION), (follower.generation, 27)):
        answer = ask(
            OFFSET_COMMIT,
            9,
            group_id="tills",
            member_id=follower.member_id,
            generation_id_or_member_epoch=generation,
            topics=[{"name": "orders", "partitions": partitions}],
        )
        assert answer.topics[0].partitions[0].error_code == error


def test_a_client_that_stops_sending_is_not_kept_waiting(
    pair: tuple[Member, Member], members: Callable[..., Member]
) -> None:
    newcomer = members()
    newcomer.member_id = newcomer.post_join()().member_id
    joining = newcomer.post_join()
    while pair[0].heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    newcomer.ask.stop_sending()
    assert joining().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (Limits(group_members_max=1), ErrorCode.GROUP_MAX_SIZE_REACHED),
        (Limits(group_bytes_max=2_000), ErrorCode.GROUP_MAX_SIZE_REACHED),
        (Limits(groups_bytes_max=2_000), ErrorCode.GROUP_MAX_SIZE_REACHED),
        (Limits(groups_max=1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_members_and_groups_are_bounded_and_those_there_are_go_on(limits: Limits, error: int) -> None:
    with FaultyBroker(limits=limits) as broker:
        first = Member(broker.bootstrap)
        first.join()
        wish = [{"name": "range", "metadata": bytes(200)}]
        first.take(first.post_join(protocols=wish)())
        other = Member(broker.bootstrap, group="tills" if error != ErrorCode.POLICY_VIOLATION else "others")
        assert other.post_join(8, protocols=wish)().error_code == error
        first.take(first.post_join(protocols=wish)())
        assert first.post_sync()().error_code == ErrorCode.NONE
        first.close()
        other.close()


# -- time and faults ------------------------------------------------------------------------------------------------


def test_a_member_that_died_is_missed_after_its_session_and_its_share_goes_to_others() -> None:
    with FaultyBroker(limits=Limits(group_session_timeout_ms_min=1)) as broker:
        leader, follower = Member(broker.bootstrap), Member(broker.bootstrap)
        leader.join()
        leader.post_sync()()
        told = follower.post_join()()
        follower.member_id = told.member_id
        # The session counts once it has joined, so it cannot be over before.
        joining = follower.post_join(session_timeout_ms=100)
        leader.join()
        follower.take(joining())
        follower.close()
        leader.post_sync()()
        while leader.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        assert len(leader.join().members) == 1
        leader.close()


def test_an_assignment_that_the_disk_does_not_take_is_given_to_nobody() -> None:
    files = FaultyFiles()
    with FaultyBroker(files=files) as broker:
        leader = Member(broker.bootstrap)
        leader.join()
        files.arm(Fault("EIO", call="write", path="journal/*"))
        assert leader.post_sync({leader.member_id: b"1"})().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        leader.join()
        assert leader.post_sync({leader.member_id: b"2"})().assignment == b"2"
        leader.close()


def test_a_group_of_five_hundred_members_with_large_assignments_gets_through(semel_broker: FaultyBroker) -> None:
    """The leader's SyncGroup names every member: it has to fit into what a request without records may take."""
    leader = Member(semel_broker.bootstrap)
    leader.join(version=9)
    share = bytes(6_000)
    shares = {f"member-{index}": share for index in range(500)} | {leader.member_id: share}
    assert leader.post_sync(shares)().assignment == share
    leader.close()
