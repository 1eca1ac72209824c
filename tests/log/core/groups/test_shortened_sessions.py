"""A lost connection shortens the session of who spoke over it: never of static members, and never to a later time."""

from dataclasses import replace

import pytest
from classic_driver import RULES as CLASSIC_RULES
from classic_driver import SESSION_MS, Driver

from semel.log.core.groups import classic, consumer_requests
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import JOIN_EPOCH
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.partitions import NOTHING
from semel.log.core.topics import Catalog
from semel.wire import refusals
from semel.wire.refusals import NONE

RULES = MemberRules()
SHARE_MS = SESSION_MS * 40 // 100


@pytest.fixture
def driver() -> Driver:
    return Driver()


def lose_connection(driver: Driver, member_id: str) -> None:
    classic.connection_lost(driver.group, member_id, driver.now_ms, driver.rules)


def check_missed_in(driver: Driver, member_id: str, duration_ms: int) -> None:
    driver.pass_time(duration_ms - 1)
    assert member_id in driver.group.members
    driver.pass_time(1)
    assert member_id not in driver.group.members


# -- groups of the classic protocol ---------------------------------------------------------------------------------


def test_who_lost_its_connection_has_a_share_of_its_session_to_show_itself(driver: Driver) -> None:
    driver.stable("a")
    lose_connection(driver, "a")
    check_missed_in(driver, "a", SHARE_MS)


def test_it_is_told_that_a_member_expired_because_its_connection_was_lost(driver: Driver) -> None:
    driver.stable("a", "b")
    lose_connection(driver, "a")
    step = classic.pass_time(driver.group, driver.now_ms + SHARE_MS)
    assert step.gone == ["a"]
    assert ("member_expired", "a was silent after its connection was lost") in step.events
    step = classic.pass_time(driver.group, driver.now_ms + SESSION_MS)
    assert ("member_expired", "b was silent for too long") in step.events


@pytest.mark.parametrize("sign", ["heartbeat", "join", "sync"])
def test_any_sign_of_life_gives_back_the_whole_session(driver: Driver, sign: str) -> None:
    generation = driver.stable("leader", "a")
    lose_connection(driver, "a")
    driver.pass_time(SHARE_MS - 1)
    driver.heartbeat("leader", generation)
    if sign == "heartbeat":
        assert driver.heartbeat("a", generation) == NONE
    elif sign == "join":
        assert driver.joined(driver.ask_to_join("a")).error == NONE
    else:
        assert driver.synced(driver.ask_to_sync("a", generation)).error == NONE
    check_missed_in(driver, "a", SESSION_MS)


def test_what_a_zombie_says_gives_nothing_back(driver: Driver) -> None:
    generation = driver.stable("a")
    lose_connection(driver, "a")
    driver.pass_time(SHARE_MS - 1)
    assert driver.heartbeat("a", generation - 1) == refusals.ILLEGAL_GENERATION
    check_missed_in(driver, "a", 1)


def test_a_lost_connection_never_makes_a_session_longer(driver: Driver) -> None:
    driver.stable("a")
    driver.pass_time(SESSION_MS - 100)
    lose_connection(driver, "a")
    check_missed_in(driver, "a", 100)


def test_a_session_is_shortened_once_whatever_else_is_lost(driver: Driver) -> None:
    driver.stable("a")
    lose_connection(driver, "a")
    driver.pass_time(SHARE_MS - 100)
    lose_connection(driver, "a")
    check_missed_in(driver, "a", 100)


def test_a_static_member_keeps_its_whole_session(driver: Driver) -> None:
    request = driver.ask_to_join(instance_id="till 1", new_id="a")
    driver.pass_time()
    driver.sync_all([request])
    lose_connection(driver, "a")
    check_missed_in(driver, "a", SESSION_MS)


def test_who_waits_for_others_over_another_connection_is_left_alone(driver: Driver) -> None:
    generation = driver.stable("a")
    newcomer = driver.new_id()
    driver.ask_to_join(newcomer)
    lose_connection(driver, newcomer)
    driver.heartbeat("a", generation)
    driver.pass_time(SESSION_MS - 1)
    assert newcomer in driver.group.members


def test_who_waited_over_the_connection_that_is_lost_has_a_share_of_its_session(driver: Driver) -> None:
    generation = driver.stable("a")
    newcomer = driver.new_id()
    waiting = driver.ask_to_join(newcomer)
    classic.forget(driver.group, waiting, driver.now_ms)
    lose_connection(driver, newcomer)
    driver.heartbeat("a", generation)
    check_missed_in(driver, newcomer, SHARE_MS)


def test_with_a_hundred_percent_a_lost_connection_means_nothing() -> None:
    driver = Driver(replace(CLASSIC_RULES, lost_connection_session_percent=100))
    driver.stable("a")
    lose_connection(driver, "a")
    check_missed_in(driver, "a", SESSION_MS)


# -- groups of the new protocol -------------------------------------------------------------------------------------


def consumer_group(instance_id: str | None = None) -> ConsumerGroup:
    """A group with one member `a`, heard at 0."""
    group = ConsumerGroup()
    says = Heartbeat("a", JOIN_EPOCH, "client", "/host", instance_id, None, 1000, ("orders",), owned=NOTHING)
    consumer_requests.check(says)
    entry = group.decide_heartbeat("group", says, Catalog(), RULES, 0)
    assert entry is not None
    group.apply(entry)
    group.hear("a", RULES, 0)
    return group


def session_ends_ms(group: ConsumerGroup) -> int | None:
    return group.members["a"].deadline_ms


def test_a_consumer_that_lost_its_connection_has_a_share_of_its_session_to_show_itself() -> None:
    group = consumer_group()
    group.connection_lost("a", RULES, 1_000)
    assert group.next_deadline_ms() == 19_000
    assert group.overdue(18_999) == []
    assert group.overdue(19_000) == ["a"]
    assert group.members["a"].has_lost_connection


def test_a_consumer_that_is_heard_has_its_whole_session_again() -> None:
    group = consumer_group()
    group.connection_lost("a", RULES, 1_000)
    group.hear("a", RULES, 18_000)
    assert session_ends_ms(group) == 18_000 + RULES.session_timeout_ms
    assert not group.members["a"].has_lost_connection


def test_a_lost_connection_never_makes_the_session_of_a_consumer_longer() -> None:
    group = consumer_group()
    group.connection_lost("a", RULES, 30_000)
    assert session_ends_ms(group) == 45_000
    group.connection_lost("a", RULES, 1_000)
    group.connection_lost("a", RULES, 2_000)
    assert session_ends_ms(group) == 19_000


def test_a_static_consumer_keeps_its_whole_session() -> None:
    group = consumer_group("till 1")
    group.connection_lost("a", RULES, 1_000)
    assert session_ends_ms(group) == 45_000
