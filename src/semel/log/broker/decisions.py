"""A live stream of the verdicts on batches, and of what happens to the records of share groups: a page in a browser
shows a duplicate at the moment when it arrives.

While nobody subscribes, a batch costs only the check of `is_watched`. While somebody does, a bounded number of the
newest verdicts of each outcome is kept, and made into text only when an event is sent. Most batches are accepted, and
nobody reads them all: an event lists only the newest few. It says how many verdicts of each outcome it leaves out. A
decision is sent before it is durable: it says how a batch was judged, and is not an acknowledgement. This file must
never wait for a subscriber, and never decide anything.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Final, NamedTuple

from semel.log.broker.metrics import Metrics
from semel.log.core.batch_checks import Verdict
from semel.wire.batch import BatchHeader
from semel.wire.sequences import ACCEPTED, DUPLICATE, FENCED, Outcome

# A console has one subscription for all its pages. Under load each subscription takes some percent of the time.
SUBSCRIPTIONS_MAX: Final = 4
# As many as a page of the console shows. Encoding them takes a tenth of a millisecond.
ACCEPTED_TOLD_MAX: Final = 50
# The same for every other outcome. An event with all of them takes half a megabyte; there are ten in a second.
OTHERS_TOLD_MAX: Final = 300
# Runs of shared records in an event: the newest.
SHARED_TOLD_MAX: Final = 50

_WORDS: Final = {outcome: outcome.name.lower() for outcome in Outcome}


class Decision(NamedTuple):
    """A batch and the verdict on it."""

    # The number of this decision since the broker was started.
    number: int
    at_ms: int
    topic: str
    partition: int
    header: BatchHeader
    verdict: Verdict


class SharedDecision(NamedTuple):
    """What has happened to a run of records of a share group."""

    at_ms: int
    # acquired, renewed, accepted, released, rejected, timed_out or archived.
    event: str
    group: str
    # Empty if it was the broker.
    member: str
    topic: str
    partition: int
    first: int
    last: int
    deliveries: int


# A decision without names, which takes a sixth of the time to make.
_Fields = tuple[int, int, str, int, BatchHeader, Verdict]


class Told(NamedTuple):
    """What one event tells a subscriber."""

    # Since the broker was started, by outcome.
    counts: Mapping[str, int]
    # How many since the last event are not in `decisions`, by outcome.
    left_out: Mapping[str, int]
    decisions: list[Decision]
    # The newest of share groups, and how many others there were.
    shared: Sequence[SharedDecision] = ()
    shared_left_out: int = 0


class Decisions:
    """The verdicts of one broker, and the subscribers to them."""

    def __init__(
        self, metrics: Metrics, accepted_max: int = ACCEPTED_TOLD_MAX, others_max: int = OTHERS_TOLD_MAX
    ) -> None:
        # Not a property, because it is read for each batch.
        self.is_watched = False
        self._metrics = metrics
        self._accepted: deque[_Fields] = deque(maxlen=accepted_max)
        self._newest = {
            outcome: self._accepted if outcome is ACCEPTED else deque[_Fields](maxlen=others_max) for outcome in Outcome
        }
        self._subscriptions: list[Subscription] = []
        # What happened to the records of share groups, and how much since the start while somebody watched.
        self._shared: deque[SharedDecision] = deque(maxlen=SHARED_TOLD_MAX)
        self.shared_count = 0
        # Whether a subscription waits for the next accepted batch; whether one waits for the next other verdict.
        self._accepted_is_awaited = False
        self._other_is_awaited = False

    def subscribe(self) -> "Subscription | None":
        """A subscription to all verdicts from now on; None if there are too many subscriptions."""
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            return None
        subscription = Subscription(self, self._metrics)
        self._subscriptions.append(subscription)
        self.is_watched = True
        return subscription

    def unsubscribe(self, subscription: "Subscription") -> None:
        """End a subscription."""
        subscription.end()
        self._subscriptions.remove(subscription)
        self.is_watched = bool(self._subscriptions)
        if not self.is_watched:
            self._shared.clear()
            for newest in self._newest.values():
                newest.clear()

    def tell(self, topic: str, partition: int, header: BatchHeader, verdict: Verdict, now_ms: int) -> None:
        """A batch was judged, and has been counted."""
        decision = (self._metrics.judged_batches, now_ms, topic, partition, header, verdict)
        if verdict.outcome is ACCEPTED:
            self._accepted.append(decision)
            is_awaited = self._accepted_is_awaited
        else:
            self._newest[verdict.outcome].append(decision)
            is_awaited = self._other_is_awaited
        if is_awaited:
            self._wake()

    def tell_shared(self, decision: SharedDecision) -> None:
        """Something has happened to records of a share group."""
        self._shared.append(decision)
        self.shared_count += 1
        if self._accepted_is_awaited:
            self._wake()

    def _wake(self) -> None:
        self._accepted_is_awaited = self._other_is_awaited = False
        for subscription in self._subscriptions:
            subscription.wake()

    def shared_after(self, number: int) -> list[SharedDecision]:
        """The newest of share groups after so many."""
        fresh = min(self.shared_count - number, len(self._shared))
        return list(self._shared)[len(self._shared) - fresh :]

    def after(self, number: int) -> list[Decision]:
        """The newest decisions after this one, in their order."""
        fresh: list[Decision] = []
        for newest in self._newest.values():
            for decision in map(Decision._make, reversed(newest)):
                if decision.number <= number:
                    break
                fresh.append(decision)
        fresh.sort()
        return fresh

    def await_next(self, *, others_only: bool) -> None:
        """Wake every subscription at the next decision, or at the next one that is not about an accepted batch."""
        self._other_is_awaited = True
        self._accepted_is_awaited |= not others_only


class Subscription:
    """How far one subscriber has been told."""

    def __init__(self, decisions: Decisions, metrics: Metrics) -> None:
        self.has_ended = False
        self._decisions = decisions
        self._metrics = metrics
        self._number = metrics.judged_batches
        self._counts = metrics.batches
        self._shared_count = decisions.shared_count
        self._news = asyncio.Event()

    def take(self) -> Told:
        """The verdicts since the last call."""
        fresh = self._decisions.after(self._number)
        before, self._counts = self._counts, self._metrics.batches
        self._number = self._metrics.judged_batches
        left_out = {word: self._counts[word] - before[word] for word in _WORDS.values()}
        for decision in fresh:
            left_out[_WORDS[decision.verdict.outcome]] -= 1
        shared = self._decisions.shared_after(self._shared_count)
        shared_left_out = self._decisions.shared_count - self._shared_count - len(shared)
        self._shared_count = self._decisions.shared_count
        return Told(self._counts, left_out, fresh, shared, shared_left_out)

    async def wait(self, seconds_max: float, *, others_only: bool = False) -> None:
        """Return when there is a decision to take, when the subscription has ended, or after `seconds_max`. With
        `others_only`, accepted batches can wait."""
        if self.has_ended or self._fresh(others_only):
            return
        self._news.clear()
        self._decisions.await_next(others_only=others_only)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._news.wait()

    def _fresh(self, others_only: bool) -> int:
        """How many decisions there are to take."""
        fresh = self._metrics.judged_batches - self._number
        if others_only:
            return fresh - (self._metrics.accepted_batches - self._counts["accepted"])
        return fresh + self._decisions.shared_count - self._shared_count

    def wake(self) -> None:
        """There is a decision to take."""
        self._news.set()

    def end(self) -> None:
        """The subscriber has disconnected."""
        self.has_ended = True
        self._news.set()


def event_of(told: Told) -> bytes:
    """The server-sent event with these verdicts."""
    decisions = ", ".join(map(_as_json, told.decisions))
    return b"data: %s\n\n" % (
        f'{{"counts": {json.dumps(told.counts)}, "left_out": {json.dumps(told.left_out)}, "decisions": [{decisions}], '
        f'"shared_left_out": {told.shared_left_out}, "shared": {json.dumps([one._asdict() for one in told.shared])}}}'
    ).encode("ascii")


def _as_json(decision: Decision) -> str:
    """Written by hand, which takes a quarter of the time: a broker under load sends hundreds in a second. The producer
    id, the epoch and the sequence number of a batch without a claim are -1.
    """
    number, at_ms, topic, partition, header, verdict = decision
    outcome = verdict.outcome
    offset = expected = got = "null"
    if outcome is ACCEPTED or outcome is DUPLICATE:
        # A duplicate has the offset of its original.
        offset = str(verdict.base_offset)
        # With the words of `semel lab`.
        said = f"{'OK' if outcome is ACCEPTED else 'DUPLICATE'} offset:{offset}"
    else:
        # These are sequence numbers for a gap, and epochs for a fenced producer.
        expected = str(verdict.expected)
        got = str(header.producer_epoch if outcome is FENCED else header.base_sequence)
        said = f"ERROR: {verdict.message}"
    return (
        f'{{"number": {number}, "at_ms": {at_ms}, "outcome": "{_WORDS[outcome]}", '
        f'"topic": {encode_basestring_ascii(topic)}, "partition": {partition}, '
        f'"producer_id": {header.producer_id}, "epoch": {header.producer_epoch}, "sequence": {header.base_sequence}, '
        f'"records": {header.record_count}, "offset": {offset}, "expected": {expected}, "got": {got}, '
        f'"said": {encode_basestring_ascii(said)}}}'
    )
