"""What an operator finds in the log: one line of one shape for each event, little of it, and nobody else's words."""

import logging
import shlex
from pathlib import Path

import pytest

import semel
from asking import Asker, ConnectionEnded
from semel.log.broker.events import (
    FIRST_LINES,
    LINES_MAX,
    PERIOD_SECONDS,
    REPEAT_SECONDS,
    REPEATABLE,
    REPEATED_MAX,
    Events,
    line,
)
from semel.log.broker.security_log import SecurityLog
from semel.testing.clock import Clock


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """The events in the log, as their fields."""
    assert all(record.name == "semel" for record in caplog.records)
    return [dict(word.split("=", 1) for word in shlex.split(record.getMessage())) for record in caplog.records]


def test_an_event_is_one_line_of_names_and_values() -> None:
    assert (
        line("closed", {"peer": "::1:9", "reason": "a b", "count": 3}) == 'event=closed peer=::1:9 reason="a b" count=3'
    )


def test_of_many_things_an_event_says_how_many_they_are() -> None:
    assert line("access_rules_added", {"rules": ((2, "orders"),) * 500}) == "event=access_rules_added rules=500"


@pytest.mark.parametrize("evil", ["x\nevent=paid amount=1", 'x" event=paid', "\x1b[2J", "", "a=b", "\u2028"])
def test_what_a_client_says_stays_inside_its_quotes(evil: str) -> None:
    written = line("closed", {"client": evil})
    assert written.startswith('event=closed client="')
    assert written.isprintable()
    assert written.isascii()


def test_an_event_that_floods_is_counted_in_place_of_being_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    events = Events(clock.monotonic)
    for number in range(1000):
        events.tell(logging.WARNING, "connection_closed", peer=f"10.0.0.{number}:1")
    events.tell(logging.WARNING, "connection_refused")
    assert [event["event"] for event in told(caplog)] == ["connection_closed"] * LINES_MAX + ["connection_refused"]
    clock.ms += round(PERIOD_SECONDS * 1000)
    caplog.clear()
    events.tell(logging.WARNING, "connection_closed", peer="10.0.1.1:1")
    assert told(caplog) == [{"event": "connection_closed", "peer": "10.0.1.1:1", "left_out": str(1000 - LINES_MAX)}]


def denied(events: Events, port: int = 1, **other: object) -> None:
    fields: dict[str, object] = {"peer": f"::1:{port}", "principal": "User:a", "operation": "READ", "resource": "TOPIC"}
    events.tell(logging.WARNING, "access_denied", **fields | {"name": "orders"} | other)


def test_a_client_that_tries_again_for_ever_gets_a_line_in_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    events = Events(clock.monotonic)
    for second in range(3600):
        denied(events, port=second)
        clock.ms += 1000
    first, then = told(caplog)[:FIRST_LINES], told(caplog)[FIRST_LINES:]
    assert not any("repeated" in event for event in first)
    assert [event["repeated"] for event in then] == [str(60 - FIRST_LINES)] + ["59"] * (len(then) - 1)
    assert len(then) == 3600 / REPEAT_SECONDS - 1


def test_a_host_that_connects_again_each_time_is_one_and_the_same(caplog: pytest.LogCaptureFixture) -> None:
    events = Events(Clock().monotonic)
    for port in range(9):
        events.tell(logging.WARNING, "login_refused", peer=f"::1:{port}", user="a", reason="wrong password")
    assert len(told(caplog)) == FIRST_LINES


@pytest.mark.parametrize("other", [{"name": "payments"}, {"principal": "User:b"}, {"operation": "WRITE"}])
def test_what_happens_for_the_first_time_is_told_beside_what_repeats(
    caplog: pytest.LogCaptureFixture, other: dict[str, str]
) -> None:
    clock = Clock()
    events = Events(clock.monotonic)
    for _ in range(30):
        denied(events)
        clock.ms += 1000
    caplog.clear()
    denied(events)
    denied(events, **other)
    (event,) = told(caplog)
    assert other.items() <= event.items()


def test_what_begins_again_after_a_quiet_minute_is_told_as_at_first(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    events = Events(clock.monotonic)
    for _ in range(2):
        for _ in range(FIRST_LINES):
            denied(events)
        clock.ms += round(REPEAT_SECONDS * 1000)
    assert len(told(caplog)) == 2 * FIRST_LINES


def test_each_thing_that_was_not_told_is_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    events = Events(clock.monotonic)
    happened = 0
    for second in range(1000):
        for number in range(second % 4 * 5):
            denied(events, name=f"topic {number}")
            happened += 1
        clock.ms += 1000
    clock.ms += round(REPEAT_SECONDS * 1000)
    for number in range(15):  # Each of them once more, in periods that have room.
        denied(events, name=f"topic {number}")
        happened += 1
        clock.ms += round(PERIOD_SECONDS * 1000)
    lines = told(caplog)
    untold = sum(int(event.get(name, 0)) for event in lines for name in ("repeated", "left_out"))
    assert len(lines) + untold == happened


def test_names_without_end_take_no_memory_without_end() -> None:
    clock = Clock()
    events = Events(clock.monotonic)
    for number in range(3 * REPEATED_MAX):
        denied(events, name="x" * 100_000 + str(number))
        denied(events, name=f"{number}")
        clock.ms += round(PERIOD_SECONDS * 1000)
    assert len(events._repeated) == REPEATED_MAX
    assert max(len(str(subject)) for subject in events._repeated) < 5_000


def test_the_security_log_has_each_refusal_however_often_it_repeats(tmp_path: Path) -> None:
    clock = Clock()
    log = SecurityLog(tmp_path / "security", time_of_day=clock.time, clock=clock.monotonic)
    events = Events(clock.monotonic, log)
    for _ in range(500):
        denied(events)
    events.close()
    assert (tmp_path / "security").read_text().count("access_denied") == 500


def test_each_event_that_may_repeat_is_one_of_the_broker() -> None:
    broker = Path(semel.__file__).parent / "log"
    source = "".join(path.read_text() for path in broker.rglob("*.py") if path.name != "events.py")
    unknown = [event for event in REPEATABLE if f'"{event}"' not in source and event != "security_log_failed"]
    assert not unknown


def test_a_broker_that_is_only_used_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    with semel.broker() as broker:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        asker.close()
    assert told(caplog) == []


def test_a_connection_that_is_closed_for_what_it_sent_is_told_with_its_peer(caplog: pytest.LogCaptureFixture) -> None:
    with semel.broker() as broker:
        asker = Asker(broker.bootstrap)
        peer = "{}:{}".format(*asker._socket.getsockname())
        asker.post(b"\xff" * 10)
        with pytest.raises((ConnectionEnded, ConnectionResetError)):
            asker.read()
    (event,) = told(caplog)
    assert event == {"event": "connection_closed", "peer": peer, "reason": "a frame of negative size -1"}


def test_beginning_and_end_are_told_to_those_who_want_to_know(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel")
    with semel.broker() as broker:
        address = broker.bootstrap
    # Where few files may be open, it says before how many connections that allows.
    *_, started, stopped = told(caplog)
    assert (started["event"], started["address"]) == ("started", address)
    assert stopped["event"] == "stopped"
