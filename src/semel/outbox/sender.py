"""Sends the messages of a shard through functions of the application: each at least once, in place of a publisher or
beside one.

Only a log can say what it has. A message that was handed over just before the relay died is handed over again, by the
next relay, with the same id: the other side has to know it again, such as with an inbox. This module must never count a
message as sent before the function has returned, and never publish one that is for a function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from semel.outbox.errors import MessageRefused, RelayFailed
from semel.outbox.ledger import NOTHING, Batch
from semel.outbox.messages import SEND_PREFIX
from semel.publish import Publisher, PublishFailed, Record, RecordRefused


@dataclass(frozen=True)
class Delivery:
    """A message as the function gets it. `id` is the same each time that it is handed over, and no other message's."""

    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    added_at_ms: int


# Returns when the message is safe with the other side. MessageRefused puts the message aside; after every other error
# the relay waits, and tries again.
Send: TypeAlias = Callable[[Delivery], object]


class Sender:
    """Does for a shard what a publisher does. `done_batch` says which batch the database knows to be sent."""

    def __init__(self, send: Send, name: str, done_batch: Callable[[], int]) -> None:
        self._send = send
        self._name = name
        self._done_batch = done_batch
        self._last: int | None = None
        # How many of a batch were handed over: a wait for the other side does not begin it again.
        self._batch, self._sent = NOTHING, 0

    def last(self) -> int:
        if self._last is None:
            self._last = self._done_batch()
        return self._last

    def put(self, batch: Batch) -> None:
        if batch.number != self._batch:
            self._batch, self._sent = batch.number, 0
        for number, record in list(zip(batch.numbers, batch.records, strict=True))[self._sent :]:
            self._hand_over(f"{self._name}-{number}", record)
            self._sent += 1
        self._last = batch.number

    def is_answered(self, seconds: float) -> bool:
        """There is nobody whom one could ask whether the function would go through."""
        return True

    def close(self) -> None:
        """The function is the application's."""

    def _hand_over(self, id: str, record: Record) -> None:
        key, value, headers, added_at_ms = record.key, record.value, record.headers, record.timestamp_ms
        try:
            # As `rows.record_of` makes them.
            self._send(Delivery(id, record.topic, key, value, tuple(headers), added_at_ms or 0))  # type: ignore[arg-type]
        except MessageRefused as refused:
            raise RecordRefused(record, str(refused)) from refused
        except Exception as error:
            raise PublishFailed(f"send raised {type(error).__name__}: {error}") from error


class Divided:
    """A publisher, beside which the messages of some topics go through the functions of these topics. The log says of
    all of a batch whether it is done: so the functions come first, and are called again if the relay dies before the
    log has the rest."""

    def __init__(self, publisher: Publisher, sends: Mapping[str, Send], name: str) -> None:
        self._publisher = publisher
        self._sends = sends
        self._sender = Sender(lambda delivery: sends[delivery.topic](delivery), name, publisher.last)

    def last(self) -> int:
        return self._publisher.last()

    def is_answered(self, seconds: float) -> bool:
        """Whether the brokers answer within this time. From any thread."""
        return self._publisher.is_answered(seconds)

    def put(self, batch: Batch) -> None:
        topics = {record.topic for record in batch.records}
        for topic in sorted(topics):
            if topic.startswith(SEND_PREFIX) and topic not in self._sends:
                raise RelayFailed(_nobody_sends(topic))
        if not self._sends.keys().isdisjoint(topics):
            both = list(zip(batch.numbers, batch.records, strict=True))
            sent = [(number, record) for number, record in both if record.topic in self._sends]
            numbers, records = zip(*sent, strict=True)
            self._sender.put(Batch(batch.number, numbers, records))
        self._publisher.publish(batch.number, *(one for one in batch.records if one.topic not in self._sends))

    def close(self) -> None:
        self._publisher.close()


def _nobody_sends(topic: str) -> str:
    return (
        f"messages of topic {topic!r} are for a function, as tasks of Celery are, and this relay has none for them: it "
        "did not publish their batch, all of which waits in the database. Run Relay(engine, kafka, "
        f"send={{{topic!r}: ...}}), with semel.celery.sender(app) for tasks; in Django name the app in SEMEL['CELERY']"
    )
