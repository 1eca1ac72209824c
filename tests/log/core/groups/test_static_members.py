"""The rules of static members of classic groups, which keep their places while they start again."""

import pytest
from classic_driver import REBALANCE_MS, Driver

from semel.log.core.groups.classic_steps import Leaver
from semel.wire import refusals
from semel.wire.refusals import NONE

BOTH = {"range": b"r", "sticky": b"s"}


def assert_known_after_a_restart(driver: Driver, member_id: str, generation: int) -> None:
    """The static member `x` is told to join again, and not that it is fenced."""
    driver.restart()
    sync = driver.synced(driver.ask_to_sync(member_id, generation, instance_id="x"))
    assert sync.error == refusals.ILLEGAL_GENERATION


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_static_member_that_starts_again_gets_its_old_assignment_without_a_rebalance(driver: Driver) -> None:
    generation = driver.stable_static("x")
    again = driver.joined(driver.ask_to_join(instance_id="x", new_id="x-2"))
    assert (again.error, again.member_id, again.generation) == (NONE, "x-2", generation)
    assert again.skip_assignment, "it leads, and everything is assigned"
    assert [member.member_id for member in again.members] == ["x-2"]
    assert driver.synced(driver.ask_to_sync("x-2", generation, instance_id="x")).assignment == b"x-1"


def test_an_older_client_that_starts_again_is_not_told_that_it_leads(driver: Driver) -> None:
    driver.stable_static("x")
    again = driver.joined(driver.ask_to_join(instance_id="x", new_id="x-2", version=8))
    assert (again.leader, again.members, again.skip_assignment) == ("x-1", (), False)


def test_whoever_had_the_instance_id_before_is_fenced(driver: Driver) -> None:
    generation = driver.stable_static("x")
    driver.ask_to_join(instance_id="x", new_id="x-2")
    assert driver.heartbeat("x-1", generation, "x") == refusals.FENCED_INSTANCE_ID
    assert driver.synced(driver.ask_to_sync("x-1", generation, instance_id="x")).error == refusals.FENCED_INSTANCE_ID
    assert driver.joined(driver.ask_to_join("x-1", "x")).error == refusals.FENCED_INSTANCE_ID
    assert driver.leave(Leaver("x-1", "x")) == [refusals.FENCED_INSTANCE_ID]


def test_a_static_member_that_has_lost_its_id_joins_again_and_is_not_fenced(driver: Driver) -> None:
    """librdkafka gives its id up when it has heard nothing for a session, and goes on with heartbeats."""
    generation = driver.stable_static("x")
    assert driver.heartbeat("", generation, "x") == refusals.UNKNOWN_MEMBER_ID
    again = driver.joined(driver.ask_to_join(instance_id="x", new_id="x-2"))
    assert (again.error, again.member_id, again.generation) == (NONE, "x-2", generation)


def test_a_static_member_that_is_replaced_while_it_waits_hears_that_it_is_fenced(driver: Driver) -> None:
    earlier = driver.ask_to_join(instance_id="x", new_id="x-1")
    later = driver.ask_to_join(instance_id="x", new_id="x-2")
    driver.pass_time()
    assert driver.joined(earlier).error == refusals.FENCED_INSTANCE_ID
    assert driver.joined(later).error == NONE


def test_a_static_member_that_starts_again_before_its_generation_is_complete_begins_a_rebalance(
    driver: Driver,
) -> None:
    first = driver.ask_to_join(instance_id="x", new_id="x-1")
    driver.pass_time()
    assert driver.joined(first).generation == 1
    again = driver.ask_to_join(instance_id="x", new_id="x-2")
    assert driver.joined(again).generation == 2


def test_a_static_member_that_changes_the_protocol_begins_a_rebalance(driver: Driver) -> None:
    request = driver.ask_to_join(instance_id="x", new_id="x-1", protocols=BOTH)
    driver.pass_time()
    generation = driver.sync_all([request])
    again = driver.ask_to_join(instance_id="x", new_id="x-2", protocols={"sticky": b"s"})
    assert driver.joined(again).generation == generation + 1
    assert driver.joined(again).protocol == "sticky"


def test_a_static_member_may_be_away_during_a_rebalance_and_keeps_its_place(driver: Driver) -> None:
    driver.stable_static("x", "y")
    request = driver.ask_to_join("x-1", "x", session_ms=100_000)
    driver.group.members.get("y-1").session_timeout_ms = 100_000  # type: ignore[union-attr]
    driver.heartbeat("y-1", driver.group.generation, "y")
    driver.pass_time(REBALANCE_MS)
    assert {member.instance_id for member in driver.joined(request).members} == {"x", "y"}


def test_a_static_member_may_start_again_before_it_has_asked_for_its_assignment(driver: Driver) -> None:
    driver.stable_static("x", "y")
    leading = driver.ask_to_join("x-1", "x")
    driver.ask_to_join("y-1", "y")
    generation = driver.joined(leading).generation
    driver.ask_to_sync("x-1", generation, {"y-1": b"share"}, "x")
    driver.ask_to_join(instance_id="y", new_id="y-2")
    assert driver.synced(driver.ask_to_sync("y-2", generation, instance_id="y")).assignment == b"share"
    for _ in range(2 * REBALANCE_MS // 1000):
        driver.pass_time(1000)
        assert driver.heartbeat("x-1", generation, "x") == driver.heartbeat("y-2", generation, "y") == NONE


def test_static_members_are_removed_by_their_instance_ids_alone(driver: Driver) -> None:
    driver.stable_static("x", "y")
    assert driver.leave(Leaver("", "y"), Leaver("", "z")) == [NONE, refusals.UNKNOWN_MEMBER_ID]
    assert [member.instance_id for member in driver.group.members] == ["x"]


def test_where_the_disk_refuses_the_static_member_before_keeps_its_place(driver: Driver) -> None:
    generation = driver.stable_static("x")
    driver.disk_refuses = True
    answer = driver.joined(driver.ask_to_join(instance_id="x", new_id="x-2"))
    assert answer.error == refusals.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat("x-1", generation, "x") == NONE


def test_a_static_member_that_starts_again_in_a_rebalance_keeps_its_new_id_over_a_restart(driver: Driver) -> None:
    driver.stable_static("x", "y")
    driver.ask_to_join("y-1", "y", protocols={"range": b"other"})
    again = driver.ask_to_join(instance_id="x", new_id="x-2")
    joined = driver.joined(again)
    assert (joined.error, joined.member_id) == (NONE, "x-2")
    assert_known_after_a_restart(driver, "x-2", joined.generation)
    assert driver.heartbeat("y-1", driver.group.generation, "y") == NONE


def test_a_static_member_that_starts_again_in_a_rebalance_lets_it_go_on(driver: Driver) -> None:
    generation = driver.stable_static("x", "y")
    requests = [driver.ask_to_join(instance_id=name, new_id=f"{name}-2") for name in ("z", "x")]
    assert not driver.answers.keys() & set(requests), "the group waits for y"
    answers = [driver.joined(request) for request in (driver.ask_to_join("y-1", "y"), *requests)]
    assert {(answer.error, answer.generation) for answer in answers} == {(NONE, generation + 1)}
    assert {member.member_id for answer in answers for member in answer.members} == {"x-2", "y-1", "z-2"}


def test_a_static_member_that_changes_the_protocol_keeps_its_new_id_over_a_restart(driver: Driver) -> None:
    request = driver.ask_to_join(instance_id="x", new_id="x-1", protocols=BOTH)
    driver.pass_time()
    driver.sync_all([request])
    joined = driver.joined(driver.ask_to_join(instance_id="x", new_id="x-2", protocols={"sticky": b"s"}))
    assert_known_after_a_restart(driver, "x-2", joined.generation)


def test_a_static_member_that_comes_back_after_its_session_keeps_its_new_id_over_a_restart(driver: Driver) -> None:
    driver.stable_static("x", "y")
    waiting = driver.ask_to_join("y-1", "y", protocols={"range": b"other"})
    assert driver.leave(Leaver("", "x")) == [NONE]
    assert driver.joined(waiting).error == NONE
    again = driver.ask_to_join(instance_id="x", new_id="x-2")
    driver.ask_to_join("y-1", "y")
    joined = driver.joined(again)
    assert (joined.error, joined.member_id) == (NONE, "x-2")
    assert_known_after_a_restart(driver, "x-2", joined.generation)


def test_where_the_disk_refuses_in_a_rebalance_the_static_member_before_keeps_its_place(driver: Driver) -> None:
    driver.stable_static("x", "y")
    waiting = driver.ask_to_join("y-1", "y", protocols={"range": b"other"})
    driver.disk_refuses = True
    answer = driver.joined(driver.ask_to_join(instance_id="x", new_id="x-2"))
    assert answer.error == refusals.COORDINATOR_NOT_AVAILABLE
    driver.ask_to_join("x-1", "x")
    assert {member.member_id for member in driver.group.members} == {"x-1", "y-1"}
    assert driver.joined(waiting).error == NONE
