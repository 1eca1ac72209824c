"""The loop between its messages: it commits the offsets of the partitions that it still has, and of messages that the
database has; it makes its retries, and polls in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from confluent_kafka import Producer
from effects import done
from sqlalchemy import Connection, Engine
from test_loop import handle, inbox_of, message

from committed_records import make_topic
from semel.database.procedures import drive
from semel.inbox import Inbox, LoopFailed, Message, Outcome, quarantine
from semel.inbox.brokers import Brokers
from semel.inbox.confluent import Handler
from semel.inbox.loop import DUE_MS_MAX, UNCOMMITTED_MAX, Place
from semel.testing.clock import Clock

ORDERS, REFUNDS = ("orders", 0), ("orders", 1)


def sent(place: Place, offset: int) -> Message:
    topic, partition = place
    made = message({"id": f"{topic}-{partition}-{offset}"}, offset)
    return Message(topic, partition, offset, None, made.value)


class Broker:
    """A client of the loop: it hands over what it was given, or does it; where there is no more, it ends the loop."""

    def __init__(self, inbox: Inbox, steps: Iterable[Message | Callable[[], object] | None]) -> None:
        self._inbox = inbox
        self._steps = iter(steps)
        self.commits: list[dict[Place, int]] = []
        self.answers: list[bool | LoopFailed] = []
        self.read_from: list[int] = []

    def start(self) -> None:
        pass

    def poll(self) -> Message | None:
        for step in self._steps:
            if not callable(step):
                return step
            step()
        self._inbox.stop()
        return None

    def release(self) -> None:
        pass

    def read_again(self, message: Message) -> None:
        self.read_from.append(message.offset)

    def commit(self, offsets: dict[Place, int]) -> bool:
        self.commits.append(offsets)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, LoopFailed):
            raise answer
        return answer

    def what_is_wrong(self) -> None:
        return None

    def leave(self) -> None:
        pass


def run(inbox: Inbox, broker: Broker, handler: Handler = handle) -> list[dict[Place, int]]:
    """The commits of the whole run."""
    drive(inbox._run(handler, broker, Brokers(Clock())))
    return broker.commits


@pytest.mark.parametrize("answer", [True, False, LoopFailed("refused")], ids=["done", "later", "refused"])
def test_the_offsets_of_revoked_partitions_are_not_committed_over_those_of_their_new_owner(
    engine: Engine, answer: bool | LoopFailed
) -> None:
    """The new owner goes on from what was committed at the revocation, or from before that; both are right. A later
    commit would set it back, or ahead of what it has done."""
    inbox = inbox_of(engine)

    def revoke(places: Sequence[Place]) -> None:
        broker.answers.append(answer)
        drive(inbox.give_up(broker, places))

    broker = Broker(inbox, [sent(ORDERS, 4), sent(REFUNDS, 6), lambda: revoke([ORDERS]), sent(REFUNDS, 7), None])
    assert run(inbox, broker) == [{ORDERS: 5}, {REFUNDS: 8}]
    assert done(engine) == ["orders-0-4", "orders-1-6", "orders-1-7"]


def test_the_offsets_of_lost_partitions_are_never_committed(engine: Engine) -> None:
    """Another consumer has them already, and may have come further."""
    inbox = inbox_of(engine)
    broker = Broker(inbox, [sent(ORDERS, 4), sent(REFUNDS, 6), lambda: inbox.forget([ORDERS]), None])
    assert run(inbox, broker) == [{REFUNDS: 7}]


def test_offsets_that_could_not_be_committed_are_committed_later(engine: Engine) -> None:
    inbox = inbox_of(engine)
    broker = Broker(inbox, [sent(ORDERS, 4), None, sent(REFUNDS, 6), None, None])
    broker.answers.append(False)
    assert run(inbox, broker) == [{ORDERS: 5}, {ORDERS: 5, REFUNDS: 7}]


def test_while_records_keep_coming_offsets_are_committed_all_the_same(engine: Engine) -> None:
    """Else a crash after an hour without a pause would have that hour delivered again."""
    inbox = inbox_of(engine)
    broker = Broker(inbox, [sent(ORDERS, offset) for offset in range(2 * UNCOMMITTED_MAX)])
    assert run(inbox, broker) == [{ORDERS: UNCOMMITTED_MAX}, {ORDERS: 2 * UNCOMMITTED_MAX}]


def test_a_message_that_waits_for_another_system_is_read_again_and_not_committed_over(engine: Engine) -> None:
    """The loop polls while it waits, to stay a member: after that message, the partition would go on without it."""
    inbox = inbox_of(engine)
    is_away = True

    def book(connection: Connection, taken: Message) -> None:
        if is_away and taken.offset == 4:
            raise ConnectionRefusedError
        handle(connection, taken)

    def come_back() -> None:
        nonlocal is_away
        is_away = False

    broker = Broker(inbox, [sent(ORDERS, 3), sent(ORDERS, 4), None, come_back, sent(ORDERS, 4), None])
    assert run(inbox, broker, book) == [{ORDERS: 4}, {ORDERS: 5}]
    assert broker.read_from == [4]
    assert done(engine) == ["orders-0-3", "orders-0-4"]


def test_a_message_that_failed_when_the_loop_was_stopped_is_left_to_the_next_one(engine: Engine) -> None:
    inbox = inbox_of(engine)

    def stop_and_fail(_connection: object, taken: Message) -> None:
        inbox.stop()
        raise RuntimeError(f"cannot book {taken.offset}")

    broker = Broker(inbox, [sent(ORDERS, 4)])
    assert run(inbox, broker, stop_and_fail) == []


# -- what is done between two records ----------------------------------------------------------------------------------


def put_aside(engine: Engine, inbox: Inbox, count: int) -> None:
    """So many messages, which a person has marked for a retry."""
    for offset in range(count):
        assert inbox.take(handle, message({"id": f"bad {offset}", "fails": True}, offset)) is Outcome.QUARANTINED
    with engine.begin() as connection:
        quarantine.retry(connection, [event.number for event in quarantine.open_events(connection)])


def test_retries_that_take_long_let_the_loop_poll_in_between_and_go_on_at_once(engine: Engine, clock: Clock) -> None:
    """A member that does not poll loses its partitions."""
    inbox = inbox_of(engine, clock=clock)
    put_aside(engine, inbox, 3)
    order: list[object] = []

    def slow(_connection: object, taken: Message) -> None:
        order.append(taken.offset)
        clock.ms += DUE_MS_MAX

    def polled() -> None:
        order.append("poll")

    broker = Broker(inbox, [polled, None, polled, None, polled, None])
    drive(inbox._run(slow, broker, Brokers(clock)))
    assert order[:6] == [0, "poll", 1, "poll", 2, "poll"]


def test_a_loop_that_is_told_to_stop_leaves_the_rest_of_its_retries(engine: Engine) -> None:
    inbox = inbox_of(engine)
    put_aside(engine, inbox, 3)
    inbox.retry_due(lambda _connection, _message: inbox.stop())
    with engine.connect() as connection:
        assert [event.state for event in quarantine.open_events(connection)] == ["due", "due"]


def test_the_time_at_which_a_broker_stored_a_record_is_not_taken_for_that_of_its_event(
    engine: Engine, bootstrap: str, topic: str
) -> None:
    """It is another one each time the event is sent, so an old event would look new to the floor."""
    make_topic(bootstrap, topic, message_timestamp_type="LogAppendTime")
    make_topic(bootstrap, f"{topic}-created")
    times = {}
    for name in (topic, f"{topic}-created"):
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(name, b'{"id": "e-1"}', timestamp=1_700_000_000_000)
        assert producer.flush(30) == 0
        inbox = inbox_of(engine, consumer=name)

        def take(_connection: object, taken: Message, inbox: Inbox = inbox) -> None:
            times[taken.topic] = taken.timestamp_ms
            inbox.stop()

        inbox.run(take, {"bootstrap.servers": bootstrap, "group.id": name}, [name])
    assert times == {topic: None, f"{topic}-created": 1_700_000_000_000}
