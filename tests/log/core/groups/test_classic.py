"""The rules of the classic group protocol, one promise after the other."""

from dataclasses import replace

import pytest
from classic_driver import REBALANCE_MS, RULES, SESSION_MS, Driver, written_and_read

from semel.log.core.groups import classic
from semel.log.core.groups.classic_group import State
from semel.log.core.groups.classic_steps import Leaver
from semel.log.core.groups.offsets import Committer
from semel.wire import refusals
from semel.wire.refusals import NONE, Refused

BOTH = {"range": b"r", "sticky": b"s"}


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_new_member_is_told_its_id_first_and_becomes_a_member_with_it(driver: Driver) -> None:
    told = driver.joined(driver.ask_to_join())
    assert told.error == refusals.MEMBER_ID_REQUIRED
    assert len(driver.group.members) == 0
    request = driver.ask_to_join(told.member_id)
    driver.pass_time()
    assert driver.joined(request).member_id == told.member_id == driver.joined(request).leader


def test_a_client_of_an_older_version_becomes_a_member_at_once(driver: Driver) -> None:
    request = driver.ask_to_join(version=3)
    driver.pass_time()
    assert driver.joined(request).error == NONE


def test_an_id_that_was_told_and_not_used_is_forgotten_after_a_session(driver: Driver) -> None:
    member_id = driver.new_id()
    driver.pass_time(SESSION_MS)
    assert driver.joined(driver.ask_to_join(member_id)).error == refusals.UNKNOWN_MEMBER_ID


def test_the_leader_hears_of_all_members_and_the_others_of_none(driver: Driver) -> None:
    ids = [driver.new_id() for _ in range(3)]
    requests = [driver.ask_to_join(member_id) for member_id in ids]
    driver.pass_time()
    answers = [driver.joined(request) for request in requests]
    assert {answer.leader for answer in answers} == {ids[0]}
    assert [member.member_id for member in answers[0].members] == ids
    assert [answer.members for answer in answers[1:]] == [(), ()]


def test_each_member_gets_what_the_leader_gave_it(driver: Driver) -> None:
    ids = [driver.new_id() for _ in range(2)]
    requests = [driver.ask_to_join(member_id) for member_id in ids]
    driver.pass_time()
    generation = driver.joined(requests[0]).generation
    waiting = driver.ask_to_sync(ids[1], generation)
    assert waiting not in driver.answers
    leading = driver.ask_to_sync(ids[0], generation, {ids[0]: b"mine", ids[1]: b"yours"})
    assert driver.synced(leading).assignment == b"mine"
    assert driver.synced(waiting).assignment == b"yours"
    assert driver.group.state is State.STABLE
    assert driver.synced(driver.ask_to_sync(ids[1], generation)).assignment == b"yours", "again, as often as it asks"


def test_a_member_that_comes_makes_all_others_join_again(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    newcomer = driver.ask_to_join(driver.new_id(new_id="c"))
    assert driver.heartbeat("a", generation) == refusals.REBALANCE_IN_PROGRESS
    first, second = driver.ask_to_join("a"), driver.ask_to_join("b")
    assert {driver.joined(request).generation for request in (newcomer, first, second)} == {generation + 1}


def test_a_rebalance_ends_without_those_who_do_not_join_again_in_time(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    request = driver.ask_to_join(driver.new_id(new_id="c"))
    for _ in range(REBALANCE_MS // 1000):
        driver.heartbeat("a", generation)
        driver.heartbeat("b", generation)
        driver.pass_time(1000)
    assert driver.joined(request).leader == "c"
    assert [member.member_id for member in driver.joined(request).members] == ["c"]
    assert driver.heartbeat("a", generation) == refusals.UNKNOWN_MEMBER_ID


def test_a_member_that_is_silent_for_its_session_is_no_member_any_more(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat("a", generation)
    driver.pass_time(1)
    assert driver.heartbeat("b", generation) == refusals.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("a", generation) == refusals.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_for_an_answer_is_not_silent(driver: Driver) -> None:
    driver.stable("a", "b")
    request = driver.ask_to_join("b", protocols={"range": b"changed"})
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat("a", 1)
    driver.pass_time(2)
    driver.ask_to_join("a")
    assert driver.joined(request).error == NONE


def test_a_member_whose_connection_was_lost_has_its_session_to_come_back(driver: Driver) -> None:
    driver.stable("a", "b")
    lost = driver.ask_to_join("b", protocols={"range": b"changed"})
    classic.forget(driver.group, lost, driver.now_ms)
    other = driver.ask_to_join("a")
    assert other not in driver.answers, "b is waited for"
    driver.pass_time(SESSION_MS)
    assert [member.member_id for member in driver.joined(other).members] == ["a"]
    assert lost not in driver.answers


def test_a_new_member_whose_connection_was_lost_and_that_joins_again_is_not_silent_while_it_waits(
    driver: Driver,
) -> None:
    driver.stable("a")
    driver.ask_to_join(new_id="b")
    lost = driver.ask_to_join("b")
    classic.forget(driver.group, lost, driver.now_ms)
    again = driver.ask_to_join("b")
    for _ in range(2):
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat("a", 1)
    assert again not in driver.answers, "a is waited for"
    driver.ask_to_join("a")
    assert driver.joined(again).error == NONE


def test_a_member_that_asks_again_takes_the_place_of_its_earlier_request(driver: Driver) -> None:
    driver.stable("a", "b")
    earlier = driver.ask_to_join("b", protocols={"range": b"changed"})
    later = driver.ask_to_join("b", protocols={"range": b"changed"})
    assert driver.joined(earlier).error == refusals.REBALANCE_IN_PROGRESS
    driver.ask_to_join("a")
    assert driver.joined(later).error == NONE


def test_a_member_that_joins_again_has_the_timeouts_that_it_asks_for_now(driver: Driver) -> None:
    driver.stable("a", "b")
    waiting = driver.ask_to_join("a", rebalance_ms=REBALANCE_MS + 5_000, session_ms=SESSION_MS + 5_000)
    for _ in range(4):
        driver.pass_time(8_000)
        driver.heartbeat("b", 1)
    assert waiting not in driver.answers, "b has until then to join"
    driver.pass_time(3_000)
    assert [member.member_id for member in driver.joined(waiting).members] == ["a"]
    generation = driver.sync_all([waiting])
    driver.pass_time(SESSION_MS + 4_999)
    assert driver.heartbeat("a", generation) == NONE
    driver.pass_time(SESSION_MS + 5_000)
    assert driver.heartbeat("a", generation) == refusals.UNKNOWN_MEMBER_ID


def test_a_member_that_waited_for_its_assignment_in_vain_has_a_whole_session_to_join_again(driver: Driver) -> None:
    requests = [driver.ask_to_join(driver.new_id(new_id=name)) for name in ("a", "b")]
    driver.pass_time()
    generation = driver.joined(requests[0]).generation
    waiting = driver.ask_to_sync("b", generation)
    for _ in range(2):
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat("a", generation)
    driver.ask_to_join(driver.new_id(new_id="c"))
    assert driver.synced(waiting).error == refusals.REBALANCE_IN_PROGRESS
    driver.pass_time(SESSION_MS - 1)
    again = [driver.ask_to_join("b"), driver.ask_to_join("a")]
    assert [driver.joined(request).error for request in again] == [NONE, NONE]


def test_a_leader_that_never_assigns_is_left_out(driver: Driver) -> None:
    ids = [driver.new_id(new_id=name) for name in ("a", "b")]
    requests = [driver.ask_to_join(member_id, session_ms=60_000) for member_id in ids]
    driver.pass_time()
    generation = driver.joined(requests[0]).generation
    waiting = driver.ask_to_sync("b", generation)
    driver.pass_time(REBALANCE_MS)
    assert driver.synced(waiting).error == refusals.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("a", generation) == refusals.UNKNOWN_MEMBER_ID
    again = driver.ask_to_join("b")
    assert driver.joined(again).leader == "b"


def test_a_zombie_of_an_earlier_generation_is_refused(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    requests = [driver.ask_to_join("a"), driver.ask_to_join("b")]
    driver.sync_all(requests)
    assert driver.heartbeat("b", generation) == refusals.ILLEGAL_GENERATION
    assert driver.synced(driver.ask_to_sync("b", generation)).error == refusals.ILLEGAL_GENERATION
    with pytest.raises(Refused) as refused:
        driver.group.check_commit(Committer("b", None, generation, is_transactional=False, version=9))
    assert refused.value.error == refusals.ILLEGAL_GENERATION


def test_a_follower_that_joins_again_unchanged_disturbs_nobody(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    answer = driver.joined(driver.ask_to_join("b"))
    assert (answer.error, answer.generation, answer.leader, answer.members) == (NONE, generation, "a", ())
    assert driver.heartbeat("a", generation) == NONE


def test_a_leader_that_joins_again_begins_a_rebalance(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    driver.ask_to_join("a")
    assert driver.heartbeat("b", generation) == refusals.REBALANCE_IN_PROGRESS


def test_the_protocol_is_the_one_that_most_prefer_of_those_that_all_know(driver: Driver) -> None:
    wishes = [{"sticky": b"", "range": b""}, {"range": b"", "sticky": b""}, {"new": b"", "range": b"", "sticky": b""}]
    ids = [driver.new_id(protocols=wish) for wish in wishes]
    requests = [driver.ask_to_join(member_id, protocols=wish) for member_id, wish in zip(ids, wishes, strict=True)]
    driver.pass_time()
    assert {driver.joined(request).protocol for request in requests} == {"range"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("consumer", {"other": b""}), ("connect", {"range": b""}), ("consumer", {})]
)
def test_a_member_with_no_protocol_in_common_is_refused(
    driver: Driver, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    driver.stable("a")
    answer = driver.joined(driver.ask_to_join(protocol_type=protocol_type, protocols=protocols))
    assert answer.error == refusals.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_that_means_another_protocol_is_refused(driver: Driver) -> None:
    generation = driver.stable("a")
    for means in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        answer = driver.synced(driver.ask_to_sync("a", generation, **means))  # type: ignore[arg-type]
        assert answer.error == refusals.INCONSISTENT_GROUP_PROTOCOL
    assert driver.synced(driver.ask_to_sync("a", generation, protocol_type="consumer", protocol="range")).error == NONE


def test_a_full_group_takes_nobody_else_but_keeps_whom_it_has() -> None:
    driver = Driver(replace(RULES, members_max=2))
    driver.stable("a", "b")
    assert driver.joined(driver.ask_to_join()).error == refusals.GROUP_MAX_SIZE_REACHED
    assert driver.joined(driver.ask_to_join("b")).error == NONE


def test_a_group_takes_no_more_bytes_than_it_may() -> None:
    driver = Driver(replace(RULES, group_bytes_max=10_000))
    driver.stable("a")
    assert driver.joined(driver.ask_to_join(protocols={"range": bytes(10_000)})).error == (
        refusals.GROUP_MAX_SIZE_REACHED
    )
    assert driver.joined(driver.ask_to_join("a", protocols={"range": bytes(10_000)})).error == (
        refusals.GROUP_MAX_SIZE_REACHED
    )


def test_members_of_a_group_that_is_full_join_again() -> None:
    driver = Driver(replace(RULES, group_bytes_max=10_000))
    brings = {"range": bytes(8_000)}
    member_id = driver.new_id(protocols=brings)
    joining = driver.ask_to_join(member_id, protocols=brings)
    driver.pass_time()
    joined = driver.joined(joining)
    driver.ask_to_sync(member_id, joined.generation, {member_id: bytes(2_000)})
    assert driver.group.size_bytes > 10_000
    assert driver.joined(driver.ask_to_join(member_id, protocols=brings)).error == NONE
    assert driver.joined(driver.ask_to_join()).error == refusals.GROUP_MAX_SIZE_REACHED


def test_protocols_without_metadata_count_as_what_a_member_takes() -> None:
    driver = Driver(replace(RULES, group_bytes_max=10_000))
    many = dict.fromkeys(map(str, range(100)), b"")
    assert driver.joined(driver.ask_to_join(protocols=many)).error == refusals.GROUP_MAX_SIZE_REACHED


def test_ids_count_as_what_a_member_takes() -> None:
    driver = Driver(replace(RULES, group_bytes_max=10_000))
    driver.stable("a")
    assert driver.joined(driver.ask_to_join(instance_id="i" * 10_000)).error == refusals.GROUP_MAX_SIZE_REACHED
    assert driver.joined(driver.ask_to_join(new_id="n" * 10_000)).error == refusals.GROUP_MAX_SIZE_REACHED


def test_the_first_member_waits_for_others_and_longer_as_they_come() -> None:
    driver = Driver(replace(RULES, initial_rebalance_delay_ms=3_000))
    first = driver.ask_to_join(version=0)
    driver.pass_time(2_000)
    second = driver.ask_to_join(version=0)
    driver.pass_time(3_000)
    assert first not in driver.answers
    driver.pass_time(1_000)
    assert driver.joined(first).generation == driver.joined(second).generation == 1


def test_the_first_member_waits_for_no_longer_than_its_rebalance_timeout_however_many_come() -> None:
    driver = Driver(replace(RULES, initial_rebalance_delay_ms=3_000))
    first = driver.ask_to_join(version=0, rebalance_ms=7_000)
    for _ in range(6):
        driver.pass_time(1_000)
        driver.ask_to_join(version=0, rebalance_ms=7_000)
    driver.pass_time(999)
    assert first not in driver.answers
    driver.pass_time(1)
    assert driver.joined(first).error == NONE


def test_the_first_member_does_not_wait_for_ever() -> None:
    driver = Driver(replace(RULES, initial_rebalance_delay_ms=3_000, members_max=100))
    first = driver.ask_to_join(version=0)
    for _ in range(REBALANCE_MS // 1000):
        driver.ask_to_join(version=0)
        driver.pass_time(1_000)
    assert driver.joined(first).error == NONE


# -- leaving --------------------------------------------------------------------------------------------------------


def test_who_leaves_is_no_member_and_the_others_join_again(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    assert driver.leave(Leaver("a", None), Leaver("nobody", None)) == [NONE, refusals.UNKNOWN_MEMBER_ID]
    assert driver.heartbeat("b", generation) == refusals.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.ask_to_join("b")).leader == "b"


def test_who_leaves_while_it_waits_hears_that_it_is_no_member(driver: Driver) -> None:
    driver.stable("a", "b")
    waiting = driver.ask_to_join("b", protocols={"range": b"changed"})
    driver.leave(Leaver("b", None))
    assert driver.joined(waiting)[:2] == (refusals.UNKNOWN_MEMBER_ID, "")


def test_who_leaves_before_it_has_joined_makes_nobody_join_again(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    assert driver.leave(Leaver(driver.new_id(), None)) == [NONE]
    assert driver.heartbeat("a", generation) == NONE


def test_a_rebalance_does_not_wait_for_who_leaves_before_it_has_joined(driver: Driver) -> None:
    driver.stable("a", "b")
    expected = driver.new_id()
    driver.leave(Leaver("b", None))
    request = driver.ask_to_join("a")
    assert request not in driver.answers
    assert driver.leave(Leaver(expected, None)) == [NONE]
    assert driver.joined(request).error == NONE


def test_a_group_that_all_have_left_is_empty_and_goes_on_counting(driver: Driver) -> None:
    generation = driver.stable("a")
    driver.leave(Leaver("a", None))
    assert driver.group.state is State.EMPTY
    assert driver.stable("b") == generation + 2


# -- what outlives the process --------------------------------------------------------------------------------------


def test_after_a_restart_members_go_on_without_a_rebalance(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    driver.pass_time(SESSION_MS - 1)
    driver.restart()
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat("a", generation) == driver.heartbeat("b", generation) == NONE, "sessions began anew"
    assert driver.synced(driver.ask_to_sync("b", generation)).assignment == b"b"
    driver.pass_time(SESSION_MS)
    assert driver.group.state is State.EMPTY


def test_what_was_stored_survives_a_checkpoint(driver: Driver) -> None:
    generation = driver.stable_static("x", "y")
    snapshot = driver.group.snapshot()
    fresh = Driver()
    fresh.group.restore(written_and_read(snapshot))
    fresh.group.begin(fresh.now_ms)
    assert fresh.heartbeat("x-1", generation, "x") == NONE
    assert fresh.group.members.leader == driver.group.members.leader
    assert fresh.group.snapshot() == snapshot


def test_a_rebalance_that_was_under_way_is_forgotten_with_the_process(driver: Driver) -> None:
    generation = driver.stable("a", "b")
    driver.ask_to_join("a")
    driver.restart()
    assert driver.group.state is State.STABLE
    assert driver.heartbeat("b", generation) == NONE


def test_where_the_disk_refuses_nobody_gets_an_assignment_and_all_join_again(driver: Driver) -> None:
    ids = [driver.new_id(new_id=name) for name in ("a", "b")]
    requests = [driver.ask_to_join(member_id) for member_id in ids]
    driver.pass_time()
    generation = driver.joined(requests[0]).generation
    driver.disk_refuses = True
    waiting = driver.ask_to_sync("b", generation)
    leading = driver.ask_to_sync("a", generation, {"a": b"1", "b": b"2"})
    for request in (waiting, leading):
        assert driver.synced(request) == (refusals.COORDINATOR_NOT_AVAILABLE, None, None, b"")
    assert driver.heartbeat("a", generation) == refusals.REBALANCE_IN_PROGRESS
    driver.disk_refuses = False
    again = [driver.ask_to_join("a"), driver.ask_to_join("b")]
    assert driver.sync_all(again) == generation + 1
    assert driver.group.state is State.STABLE


def test_whoever_waits_when_the_broker_stops_is_told_to_look_elsewhere(driver: Driver) -> None:
    driver.stable("a", "b")
    waiting = driver.ask_to_join("b", protocols={"range": b"changed"})
    driver.carry_out(classic.close(driver.group, driver.now_ms))
    assert driver.joined(waiting).error == refusals.NOT_COORDINATOR
    assert driver.heartbeat("a", 1) == refusals.COORDINATOR_NOT_AVAILABLE


# -- what others ask ------------------------------------------------------------------------------------------------


def test_offsets_are_committed_by_members_of_the_generation_or_while_there_are_none(driver: Driver) -> None:
    driver.group.check_commit(Committer("", None, -1, is_transactional=False, version=9))
    generation = driver.stable("a")
    driver.group.check_commit(Committer("a", None, generation, is_transactional=False, version=9))
    driver.group.check_commit(Committer("", None, -1, is_transactional=True, version=0))
    for member_id, number, error in (
        ("", -1, refusals.UNKNOWN_MEMBER_ID),
        ("b", generation, refusals.UNKNOWN_MEMBER_ID),
        ("a", generation + 1, refusals.ILLEGAL_GENERATION),
    ):
        with pytest.raises(Refused) as refused:
            driver.group.check_commit(Committer(member_id, None, number, is_transactional=False, version=9))
        assert refused.value.error == error


@pytest.mark.parametrize("transactional", [False, True])
def test_whoever_names_an_instance_that_is_a_member_has_to_be_that_member(driver: Driver, transactional: bool) -> None:
    driver.stable_static("i")
    with pytest.raises(Refused) as refused:
        driver.group.check_commit(Committer("", "i", -1, is_transactional=transactional, version=9))
    assert refused.value.error == refusals.FENCED_INSTANCE_ID


@pytest.mark.parametrize("transactional", [False, True])
def test_whoever_names_generation_0_has_to_be_a_member(driver: Driver, transactional: bool) -> None:
    """Also in a group that is empty, and in a transaction, which may otherwise commit for nobody."""
    for member_id in ("", "b"):
        committer = Committer(member_id, None, 0, is_transactional=transactional, version=9)
        with pytest.raises(Refused) as refused:
            driver.group.check_commit(committer)
        assert refused.value.error == refusals.UNKNOWN_MEMBER_ID
    driver.stable("a")
    for member_id, error in (("", refusals.UNKNOWN_MEMBER_ID), ("a", refusals.ILLEGAL_GENERATION)):
        committer = Committer(member_id, None, 0, is_transactional=transactional, version=9)
        with pytest.raises(Refused) as refused:
            driver.group.check_commit(committer)
        assert refused.value.error == error


def test_a_generation_without_assignments_commits_no_offsets_but_those_of_transactions(driver: Driver) -> None:
    request = driver.ask_to_join(driver.new_id(new_id="a"))
    driver.pass_time()
    generation = driver.joined(request).generation
    with pytest.raises(Refused) as refused:
        driver.group.check_commit(Committer("a", None, generation, is_transactional=False, version=9))
    assert refused.value.error == refusals.REBALANCE_IN_PROGRESS
    driver.group.check_commit(Committer("a", None, generation, is_transactional=True, version=3))


def test_a_group_knows_which_topics_its_members_ask_for(driver: Driver) -> None:
    asks = bytes([0, 1, 0, 0, 0, 2, 0, 1]) + b"t" + bytes([0, 2]) + b"uv" + b"more of a later version"
    driver.stable("a", protocols={"range": asks})
    assert driver.group.subscribed_topics() == frozenset({"t", "uv"})
    assert driver.group.is_subscribed_to("uv")
    assert not driver.group.is_subscribed_to("w")
    assert driver.group.retention_begins_ms(5) == 5


@pytest.mark.parametrize("metadata", [b"", bytes([0, 0, 127, 255, 255, 255]), bytes([0, 0, 0, 0, 0, 1, 0, 9]) + b"t"])
def test_a_group_whose_wishes_cannot_be_read_may_read_anything(driver: Driver, metadata: bytes) -> None:
    driver.stable("a", protocols={"range": metadata})
    assert driver.group.subscribed_topics() is None
    assert driver.group.is_subscribed_to("t")
    assert driver.group.retention_begins_ms(5) is None


def test_offsets_of_an_empty_group_are_of_no_use_from_when_it_became_empty(driver: Driver) -> None:
    driver.stable("a")
    driver.pass_time(500)
    left_at_ms = driver.now_ms
    driver.leave(Leaver("a", None))
    assert driver.group.retention_begins_ms(5) == left_at_ms
