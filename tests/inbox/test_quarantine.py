"""What was put aside waits for a person; it is tried again before anything new, and never done twice."""

from __future__ import annotations

from typing import Any

import pytest
from effects import done, uuid7
from sqlalchemy import Engine
from test_loop import handle, inbox_of, message

from semel.inbox import Inbox, Message, Outcome, derived_key, once, quarantine, reap
from semel.inbox.quarantine import QuarantinedEvent, Unsettled
from semel.inbox.reaper import DAY_MS
from semel.testing.clock import Clock


def waiting(engine: Engine) -> list[QuarantinedEvent]:
    with engine.begin() as connection:
        return quarantine.open_events(connection)


def retry(engine: Engine, *numbers: int) -> None:
    with engine.begin() as connection:
        quarantine.retry(connection, numbers or [event.number for event in quarantine.open_events(connection)])


def drop(engine: Engine, *numbers: int) -> None:
    with engine.begin() as connection:
        quarantine.drop(connection, numbers, first_version=1, now_ms=1)


def put(inbox: Inbox, *events: Any) -> list[Outcome | None]:
    return [inbox.take(handle, message(event, offset)) for offset, event in enumerate(events)]


class Mended:
    """A handler that does what the other one could not."""

    def __init__(self) -> None:
        self.done: list[bytes | None] = []

    def __call__(self, _connection: object, taken: Any) -> None:
        self.done.append(taken.value)


def test_what_failed_is_done_when_it_is_tried_again_and_its_event_stays_known(engine: Engine) -> None:
    inbox, mended = inbox_of(engine), Mended()
    bad = {"id": "bad", "fails": True}
    # The producer sends it again, and this time it would not fail: it is claimed.
    assert put(inbox, bad, {"id": "bad"}) == [Outcome.QUARANTINED, Outcome.DUPLICATE]
    inbox.retry_due(mended)
    assert mended.done == []
    retry(engine)
    inbox.retry_due(mended)
    inbox.retry_due(mended)
    assert mended.done == [message(bad).value]
    assert (waiting(engine), inbox.counts.retried) == ([], 1)
    assert put(inbox, bad) == [Outcome.DUPLICATE]


def test_what_fails_again_is_held_again(engine: Engine) -> None:
    inbox = inbox_of(engine)
    put(inbox, {"id": "bad", "fails": True})
    retry(engine)
    inbox.retry_due(handle)
    [event] = waiting(engine)
    assert (event.state, event.attempts, done(engine), inbox.counts.retried) == ("held", 4, [], 0)
    with pytest.raises(Unsettled, match="there is no 99"):
        retry(engine, 99)


def test_a_place_in_a_topic_that_comes_up_when_it_is_tried_again_does_not_stop_the_loop(engine: Engine) -> None:
    """It would again at each start: the message is due until it was tried."""

    def careless(_connection: object, taken: Message) -> None:
        derived_key("billing", f"orders:0:{taken.offset}", "charge")

    inbox = inbox_of(engine)
    put(inbox, {"id": "bad", "fails": True})
    retry(engine)
    inbox.retry_due(careless)
    [event] = waiting(engine)
    assert event.state == "held"
    assert "is a place in a topic" in event.reason


def test_what_could_not_be_decoded_is_claimed_when_it_can(engine: Engine) -> None:
    put(inbox_of(engine), b"\xff", {"id": "a"})
    [undecodable] = waiting(engine)
    retry(engine)
    readable = inbox_of(engine, identity=lambda taken: "a" if taken.value == b"\xff" else "b")
    mended = Mended()
    readable.retry_due(mended)
    # It turns out to be an event that was there.
    assert (mended.done, waiting(engine)) == ([], [])
    assert undecodable.message == message(b"\xff")


def test_versions_come_out_in_their_order(engine: Engine) -> None:
    inbox = inbox_of(engine)
    versions = [{"order": "o", "version": version} for version in (1, 3, 4)]
    assert put(inbox, *versions) == ["accepted", "quarantined", "quarantined"]
    retry(engine)
    inbox.retry_due(handle)
    assert done(engine) == ["o.1"]
    put(inbox, {"order": "o", "version": 2})
    retry(engine)
    inbox.retry_due(handle)
    assert (done(engine), waiting(engine)) == (["o.1", "o.2", "o.3", "o.4"], [])


def test_what_is_dropped_is_dealt_with(engine: Engine) -> None:
    inbox = inbox_of(engine)
    events = [{"id": "bad", "fails": True}, {"order": "o", "version": 1, "fails": True}, {"order": "o", "version": 2}]
    put(inbox, *events)
    event, first, second = (event.number for event in waiting(engine))
    with pytest.raises(Unsettled, match="still missing"):
        drop(engine, second)
    drop(engine, event, first)
    retry(engine)
    inbox.retry_due(handle)
    assert done(engine) == ["o.2"]
    assert put(inbox, *events) == ["duplicate"] * 3
    with pytest.raises(Unsettled, match="now: dropped"):
        retry(engine, event)


def forget_an_event(engine: Engine, clock: Clock) -> None:
    """So the floor is eight days ago."""
    with engine.begin() as connection, once(connection, consumer="billing", message_id=uuid7(clock.ms), clock=clock):
        pass
    clock.ms += 8 * DAY_MS
    assert reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock) == 1


def test_what_is_older_than_the_floor_is_done_if_a_person_says_so(engine: Engine, clock: Clock) -> None:
    forget_an_event(engine, clock)
    old = {"id": uuid7(clock.ms - 9 * DAY_MS)}
    inbox = inbox_of(engine, clock=clock)
    assert put(inbox, old, old) == ["quarantined", "duplicate"]
    retry(engine)
    inbox.retry_due(handle)
    assert done(engine) == [old["id"]]
    assert put(inbox, old) == ["duplicate"]


def test_what_was_claimed_outside_of_a_loop_has_no_message_to_try(engine: Engine, clock: Clock) -> None:
    forget_an_event(engine, clock)
    old = uuid7(clock.ms - 9 * DAY_MS)
    with engine.begin() as connection, once(connection, consumer="billing", message_id=old, clock=clock) as first:
        assert first is Outcome.QUARANTINED
    with pytest.raises(Unsettled, match="has no message"):
        retry(engine)
    drop(engine, waiting(engine)[0].number)
