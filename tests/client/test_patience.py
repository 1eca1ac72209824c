"""How long the pipeline goes on asking, by a clock that moves only while it waits."""

import pytest

from semel.client import UnknownTopic, Unreachable, from_options
from semel.client.connection import ConnectionLost, ConnectionRefused
from semel.client.errors import LogError
from semel.client.patience import (
    CONCLUDING_MS,
    CONCLUDING_SECONDS_MAX,
    MISSING_SECONDS_MAX,
    SAY_SECONDS,
    Concluding,
    Moved,
    Patience,
)
from semel.testing.clock import Clock

SETTINGS = from_options({"kafka.bootstrap.servers": "127.0.0.1:1"})
API_SECONDS = SETTINGS.api_timeout_ms / 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


def seconds_until_it_is_enough(clock: Clock, waiting: Patience, reason: LogError, expected: type[LogError]) -> float:
    def go_on() -> None:
        while clock.time() < since + 10 * API_SECONDS:
            waiting.wait(reason)

    since = clock.time()
    with pytest.raises(expected):
        go_on()
    return clock.time() - since


def test_a_topic_is_missing_from_when_it_was_first_said_to_be(clock: Clock) -> None:
    """However long something else was waited for before."""
    waiting = Patience(SETTINGS, clock=clock)
    clock.ms += round(API_SECONDS / 2 * 1000)
    missing = seconds_until_it_is_enough(clock, waiting, UnknownTopic("none"), UnknownTopic)
    assert MISSING_SECONDS_MAX <= missing < MISSING_SECONDS_MAX + 2


@pytest.mark.parametrize("between", ["another error", "progress"])
def test_a_topic_that_was_not_missing_in_between_is_missing_anew(clock: Clock, between: str) -> None:
    waiting = Patience(SETTINGS, clock=clock)
    waiting.wait(UnknownTopic("none"))
    clock.ms += round(MISSING_SECONDS_MAX * 1000)
    if between == "progress":
        waiting.progress()
    else:
        waiting.wait(Moved("elsewhere"))
    assert seconds_until_it_is_enough(clock, waiting, UnknownTopic("none"), UnknownTopic) >= MISSING_SECONDS_MAX


def test_a_cluster_at_an_address_that_nobody_has_reached_is_not_waited_for_as_one_that_is_away(clock: Clock) -> None:
    waiting = Patience(SETTINGS, clock=clock)
    tried = seconds_until_it_is_enough(clock, waiting, ConnectionRefused("refused"), Unreachable)
    assert MISSING_SECONDS_MAX <= tried < MISSING_SECONDS_MAX + 2
    assert len(clock.sleeps) > 3
    waiting.progress()
    waiting.wait(ConnectionRefused("refused"))
    waiting.wait(ConnectionLost("no answer"))
    assert seconds_until_it_is_enough(clock, waiting, ConnectionLost("no answer"), Unreachable) > API_SECONDS / 2


def test_progress_gives_all_of_the_time_once_more(clock: Clock) -> None:
    waiting = Patience(SETTINGS, clock=clock)
    clock.ms += round(API_SECONDS / 2 * 1000)
    waiting.progress()
    tried = seconds_until_it_is_enough(clock, waiting, ConnectionLost("lost"), Unreachable)
    assert API_SECONDS <= tried < API_SECONDS + 2


def test_a_broker_that_concludes_is_asked_again_soon_but_not_for_long(clock: Clock) -> None:
    waiting = Patience(SETTINGS, clock=clock)
    seconds_until_it_is_enough(clock, waiting, Concluding("ending"), Unreachable)
    soon = CONCLUDING_MS / 1000
    # The clock adds fractions up, so that the last of them may fall to either side.
    assert abs(clock.sleeps.count(soon) - CONCLUDING_SECONDS_MAX / soon) <= 1
    assert min(wait for wait in clock.sleeps if wait != soon) > soon


def test_what_is_waited_for_is_said_once_after_some_seconds_and_once_when_it_is_over(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Patience(SETTINGS, clock=clock)
    while clock.time() < Clock().time() + SAY_SECONDS:
        waiting.wait(ConnectionLost("no broker at 127.0.0.1:1"))
    assert caplog.messages == []
    for _ in range(9):
        waiting.wait(ConnectionLost("no broker at 127.0.0.1:1"))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("waiting: no broker at 127.0.0.1:1 (tried for ")
    waiting.end()
    waiting.end()
    assert caplog.messages[1:] == ["going on: what was waited for is there"]
