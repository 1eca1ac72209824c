"""What was put aside waits for a person; it is tried again before anything new, and never done twice."""

from __future__ import annotations

from typing import Any

import pytest
from effects import done, uuid7
from sqlalchemy import Engine
from test_loop import AT_ONCE, handle, inbox_of, message

from semel.inbox import Inbox, Message, Outcome, derived_key, once, quarantine, reap
from semel.inbox.quarantine import QuarantinedEvent, State, Unsettled
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


def kept(engine: Engine, number: int) -> QuarantinedEvent:
    """The row of this number, whatever has become of its message."""
    with engine.connect() as connection:
        event = quarantine.event_of(connection, number)
    assert event is not None
    return event


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


# -- the rows of several consumers, and what is kept of each -----------------------------------------------------------


def test_a_loop_retries_only_what_its_own_consumer_has_put_aside(engine: Engine) -> None:
    """The handler of another consumer has another effect."""
    billing, shipping = inbox_of(engine), inbox_of(engine, consumer="shipping")
    for inbox in (billing, shipping):
        put(inbox, {"id": "bad", "fails": True})
    retry(engine)
    mended = Mended()
    billing.retry_due(mended)
    assert len(mended.done) == 1
    assert [(event.consumer, event.state) for event in waiting(engine)] == [("shipping", "due")]
    shipping.retry_due(mended)
    assert (len(mended.done), waiting(engine)) == (2, [])


def test_a_message_comes_out_of_the_quarantine_as_it_went_in(engine: Engine, clock: Clock) -> None:
    """Its handler may need any of it, and its time says how long its claim is kept."""
    inbox = inbox_of(engine, clock=clock)
    headers = (("trace", b"\xff\x00"), ("none", None), ("empty", b""), ("trace", b"2"), ("größe", b"1"))
    events = [
        Message("orders", 3, 17, b"\xffkey", b'{"id": "bad"}', headers, clock.ms - 5),
        Message("orders", 3, 18, None, None, (), None),
    ]
    taken: list[Message] = []

    def fail(_connection: object, message: Message) -> None:
        raise RuntimeError

    for event in events:
        assert inbox_of(engine, identity=lambda one: f"e-{one.offset}").take(fail, event) is Outcome.QUARANTINED
    retry(engine)
    inbox.retry_due(lambda _connection, message: taken.append(message))
    assert taken == events


def test_two_messages_that_lay_at_one_place_one_after_the_other_are_both_put_aside(engine: Engine) -> None:
    """The topic was made anew in between, so the second one is no delivery of the first."""
    inbox = inbox_of(engine)
    first, second = message(b"\xff"), message(b"\xfe")
    outcomes = [inbox.take(handle, one) for one in (first, second, second, first)]
    assert outcomes == ["quarantined", "quarantined", "duplicate", "duplicate"]
    assert [event.message for event in waiting(engine)] == [first, second]


def test_what_another_delivery_has_done_before_the_last_failure_is_not_put_aside(engine: Engine) -> None:
    """A person who has it retried would have it done twice."""
    looks = 0

    def claimed_by_another(taken: Message) -> str:
        nonlocal looks
        looks += 1
        if looks == AT_ONCE.attempts + 1:
            with engine.begin() as connection, once(connection, consumer="billing", message_id="bad") as first:
                assert first
        return "bad"

    inbox = inbox_of(engine, identity=claimed_by_another)
    assert put(inbox, {"id": "bad", "fails": True}) == [Outcome.DUPLICATE]
    assert waiting(engine) == []


def test_what_still_cannot_be_decoded_when_it_is_retried_is_not_lost(engine: Engine) -> None:
    inbox = inbox_of(engine)
    put(inbox, b"\xff")
    retry(engine)
    inbox.retry_due(handle)
    [event] = waiting(engine)
    assert (event.state, event.message, inbox.counts.retried) == ("held", message(b"\xff"), 0)
    mended = Mended()
    retry(engine)
    inbox_of(engine, identity=lambda _: "readable").retry_due(mended)
    assert (mended.done, waiting(engine)) == ([b"\xff"], [])


def test_nothing_of_a_message_is_kept_once_it_is_done_or_dropped(engine: Engine) -> None:
    """A message may hold what has to be deleted by law."""
    inbox = inbox_of(engine)
    put(inbox, {"id": "retried", "fails": True}, {"id": "dropped", "fails": True})
    first, second = (event.number for event in waiting(engine))
    retry(engine, first)
    inbox.retry_due(Mended())
    drop(engine, second)
    assert [(kept(engine, number).state, kept(engine, number).message) for number in (first, second)] == [
        ("done", None),
        ("dropped", None),
    ]


def test_what_a_person_drops_while_it_fails_again_stays_dropped(engine: Engine) -> None:
    """Between the failure and the note of it the loop holds nothing."""
    inbox = inbox_of(engine)
    put(inbox, {"id": "bad", "fails": True})
    [event] = waiting(engine)
    retry(engine)
    drop(engine, event.number)
    with engine.begin() as connection:
        quarantine.hold_again(connection, event.number, State.DUE, "it failed again")
    assert (kept(engine, event.number).state, waiting(engine)) == ("dropped", [])


def test_what_waits_for_its_retry_is_kept_however_long_the_loop_is_away(engine: Engine, clock: Clock) -> None:
    inbox = inbox_of(engine, clock=clock)
    put(inbox, {"id": "bad", "fails": True}, b"\xff")
    retry(engine, waiting(engine)[0].number)
    clock.ms += 400 * DAY_MS
    reap(engine, consumer="billing", clock=clock)
    assert [event.state for event in waiting(engine)] == ["due", "held"]
    mended = Mended()
    inbox.retry_due(mended)
    assert len(mended.done) == 1


def test_the_reaper_of_one_consumer_lets_no_other_take_a_settled_message_anew(engine: Engine, clock: Clock) -> None:
    """Each consumer has a retention of its own, which is as long as its messages may be delivered again."""
    shipping = inbox_of(engine, consumer="shipping", clock=clock)
    put(shipping, b"\xff")
    with engine.begin() as connection:
        quarantine.drop(connection, [quarantine.open_events(connection)[0].number], first_version=1, now_ms=clock.ms)
    clock.ms += 8 * DAY_MS
    reap(engine, consumer="billing", retention_ms=7 * DAY_MS, clock=clock)
    assert put(shipping, b"\xff") == [Outcome.DUPLICATE]
    reap(engine, consumer="shipping", retention_ms=7 * DAY_MS, clock=clock)
    assert put(shipping, b"\xff") == [Outcome.QUARANTINED]
