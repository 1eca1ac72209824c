"""What an operator finds in the log: one line of one shape for each event, little of it, and nobody else's words."""

import logging
import shlex

import pytest

import semel
from asking import Asker, ConnectionEnded
from semel.log.broker.events import LINES_MAX, PERIOD_SECONDS, Events, line
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
        events.tell(logging.WARNING, "connection_closed", number=number)
    events.tell(logging.WARNING, "connection_refused")
    assert [event["event"] for event in told(caplog)] == ["connection_closed"] * LINES_MAX + ["connection_refused"]
    clock.ms += round(PERIOD_SECONDS * 1000)
    caplog.clear()
    events.tell(logging.WARNING, "connection_closed", number=1000)
    assert told(caplog) == [{"event": "connection_closed", "number": "1000", "left_out": str(1000 - LINES_MAX)}]


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
