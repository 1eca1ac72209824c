"""A live stream of the verdicts on batches: a page in a browser shows a duplicate at the moment when it arrives.

A decision object is made only while there is a subscriber; otherwise each batch only checks `is_watched`. A
subscription holds the newest decisions that its subscriber has not taken. If the subscriber is slower than the broker,
the oldest are dropped, and it is told how many. A decision is sent before it is durable: it says how a batch was
judged, and is not an acknowledgement. This file must never wait for a subscriber, and never decide anything.
"""

import asyncio
import contextlib
import json
from collections import deque
from typing import Final, NamedTuple

from semel.broker.metrics import Metrics
from semel.core.batch import BatchHeader
from semel.core.batch_checks import Verdict
from semel.core.producers import ACCEPTED, DUPLICATE, FENCED, Outcome

# A console has one subscription for all its pages. Under load each subscription takes some percent of the time.
SUBSCRIPTIONS_MAX: Final = 4
# A broker under load makes this many in a tenth of a second; encoding them takes two milliseconds.
HELD_MAX: Final = 500

_WORDS: Final = {outcome: outcome.name.lower() for outcome in Outcome}


class Decision(NamedTuple):
    """A batch and the verdict on it."""

    # The number of this decision since the broker was started.
    number: int
    at_ms: int
    outcome: str
    topic: str
    partition: int
    # All three are -1 for a batch that makes no claim.
    producer_id: int
    epoch: int
    sequence: int
    records: int
    # The offset of the batch, or of its original if it is a duplicate; None if nothing was written.
    offset: int | None
    # Sequence numbers for a gap, epochs for a fenced producer; otherwise None.
    expected: int | None
    got: int | None
    # In the words of `semel lab`.
    said: str


class Subscription:
    """The newest decisions that one subscriber has not taken."""

    def __init__(self, held_max: int) -> None:
        self.has_ended = False
        self._held_max = held_max
        self._held: deque[Decision] = deque()
        self._lost = 0
        self._news = asyncio.Event()

    def hear(self, decision: Decision) -> None:
        """Add a decision; drop the oldest one if there are too many."""
        if len(self._held) == self._held_max:
            self._held.popleft()
            self._lost += 1
        self._held.append(decision)
        self._news.set()

    def take(self) -> tuple[int, list[Decision]]:
        """How many decisions were dropped since the last call, and those that came after them."""
        lost, decisions = self._lost, list(self._held)
        self._lost = 0
        self._held.clear()
        self._news.clear()
        return lost, decisions

    async def wait(self, seconds_max: float) -> None:
        """Return when there is a decision to take, when the subscription has ended, or after `seconds_max`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._news.wait()

    def end(self) -> None:
        """The subscriber has disconnected."""
        self.has_ended = True
        self._news.set()


class Decisions:
    """The subscriptions to the verdicts of one broker."""

    def __init__(self, metrics: Metrics, held_max: int = HELD_MAX) -> None:
        # Not a property, because it is read for each batch.
        self.is_watched = False
        self._metrics = metrics
        self._held_max = held_max
        self._subscriptions: list[Subscription] = []

    def subscribe(self) -> Subscription | None:
        """A subscription to all verdicts from now on; None if there are too many subscriptions."""
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            return None
        subscription = Subscription(self._held_max)
        self._subscriptions.append(subscription)
        self.is_watched = True
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        subscription.end()
        self._subscriptions.remove(subscription)
        self.is_watched = bool(self._subscriptions)

    def tell(self, topic: str, partition: int, header: BatchHeader, verdict: Verdict, now_ms: int) -> None:
        """A batch was judged, and has been counted."""
        outcome = verdict.outcome
        offset, expected, got, answer = None, None, None, f"ERROR: {verdict.message}"
        if outcome is ACCEPTED or outcome is DUPLICATE:
            offset = verdict.base_offset
            answer = f"{'OK' if outcome is ACCEPTED else 'DUPLICATE'} offset:{offset}"
        else:
            expected = verdict.expected
            got = header.producer_epoch if outcome is FENCED else header.base_sequence
        decision = Decision(
            self._metrics.judged_batches,
            now_ms,
            _WORDS[outcome],
            topic,
            partition,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            offset,
            expected,
            got,
            answer,
        )
        for subscription in self._subscriptions:
            subscription.hear(decision)


def event_of(subscription: Subscription, metrics: Metrics) -> bytes:
    """The next server-sent event for a subscriber: the counts since the broker was started, how many decisions were
    dropped, and those that came after them.
    """
    lost, decisions = subscription.take()
    fields = {"counts": metrics.batches, "lost": lost, "decisions": [decision._asdict() for decision in decisions]}
    return b"data: %s\n\n" % json.dumps(fields).encode()
