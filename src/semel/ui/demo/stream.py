"""The stream of payments: the same payments three times side by side, with the same faults but different settings.

The senders are ordinary clients (librdkafka) with the settings that `semel.settings` gives for each semantic; each has
its own proxy and topic. The results are counted from the records in the topics, read without the proxies. This file
must never tell a client that a fault is coming.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from semel import settings
from semel.chaos.plan import FaultPlan
from semel.chaos.plan_file import PRODUCE
from semel.chaos.proxy import ChaosProxy
from semel.settings import Semantics
from semel.ui.demo import DemoFailed
from semel.ui.demo.payments import PARTITIONS, Payment, copies
from semel.ui.demo.stage import CountedBroker, create_topics, read
from semel.ui.demo.timetable import HANG_SECONDS, Strike

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

# How often the senders do their work, and how often figures are recorded for the charts.
TICK_SECONDS: Final = 0.005
SAMPLE_SECONDS: Final = 0.1
# How long the remaining answers may take after the last payment is sent.
SETTLE_SECONDS_MAX: Final = 60.0
NEVER: Final = -1.0

# What the demo sets besides the bundle. The socket timeout is shorter than the hang, so that clients notice the hang.
OWN_SETTINGS: Final = {
    "linger.ms": 5,
    "socket.timeout.ms": 1_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


@dataclass(slots=True)
class Run:
    """The run of one semantic: what was sent, which answers the client got, and what the topic holds."""

    semantics: Semantics
    topic: str
    # By position in the stream: seconds from the first payment to the acknowledgement, and the number of stored copies.
    acknowledged_at: "array[float]"
    failed: int = 0
    copies: list[int] = field(default_factory=list)
    connections: int = 0
    struck: dict[str, int] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        return len(self.acknowledged_at)

    @property
    def acknowledged(self) -> int:
        return sum(at != NEVER for at in self.acknowledged_at)

    @property
    def stored(self) -> int:
        return sum(self.copies)

    @property
    def lost(self) -> int:
        return self.copies.count(0)

    @property
    def doubled(self) -> int:
        """How many records are further copies of a stored payment."""
        return self.stored - (len(self.copies) - self.lost)

    @property
    def kept_its_promise(self) -> bool:
        """Whether the faults had the effects that its name allows, and no others."""
        return {
            Semantics.AT_MOST_ONCE: self.lost > 0 and self.doubled == 0,
            Semantics.AT_LEAST_ONCE: self.lost == 0 and self.doubled > 0,
            Semantics.EXACTLY_ONCE: self.lost == self.doubled == 0 and self.acknowledged == self.sent,
        }[self.semantics]


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures at one moment of the stream."""

    at_seconds: float
    sent: int
    acknowledged: tuple[int, ...]
    absorbed: int


@dataclass(slots=True)
class Stream:
    """The results of all three runs."""

    payments: Sequence[Payment]
    per_second: int
    strikes: Sequence[Strike]
    runs: tuple[Run, ...]
    samples: list[Sample] = field(default_factory=list)
    absorbed: int = 0

    @property
    def seconds(self) -> float:
        return len(self.payments) / self.per_second


class Sender:
    """One client and its proxy."""

    def __init__(self, run: Run, proxy: ChaosProxy) -> None:
        from confluent_kafka import Producer

        self.run = run
        self.proxy = proxy
        self.acknowledged = 0
        self._producer = Producer({**client_settings(run.semantics), "bootstrap.servers": proxy.bootstrap})

    def send(self, payment: Payment, value: bytes, begun: float) -> None:
        def on_delivery(error: "KafkaError | None", _: "Message") -> None:
            if error is None:
                self.run.acknowledged_at[payment.position] = time.monotonic() - begun
                self.acknowledged += 1
            else:
                self.run.failed += 1

        while True:
            try:
                self._producer.produce(self.run.topic, value, partition=payment.partition, on_delivery=on_delivery)
                return
            except BufferError:
                # The client's queue is full, as it may be in a hang; it takes more only after its answers are polled.
                self._producer.poll(TICK_SECONDS)

    def hear(self) -> None:
        self._producer.poll(0)

    def settle(self) -> None:
        left = self._producer.flush(SETTLE_SECONDS_MAX)
        if left:
            raise DemoFailed(f"{left} payments of the run {self.run.semantics} were neither acknowledged nor refused")


def client_settings(semantics: Semantics) -> dict[str, Any]:
    """The settings of the demo's clients, without their addresses."""
    return {**settings.bundle(semantics, "confluent").producer, **OWN_SETTINGS}


def topic_of(semantics: Semantics) -> str:
    return f"payments-{semantics}"


def flow(
    broker: CountedBroker,
    payments: Sequence[Payment],
    per_second: int,
    strikes: Sequence[Strike],
    show: Callable[[Sample, Strike | None], None],
) -> Stream:
    """Send everything, three times side by side, while the faults strike; then count what is stored."""
    runs = tuple(Run(one, topic_of(one), array("d", [NEVER]) * len(payments)) for one in Semantics)
    stream = Stream(payments, per_second, strikes, runs)
    create_topics(broker.bootstrap, [run.topic for run in runs], PARTITIONS)
    proxies = [ChaosProxy(broker.bootstrap, FaultPlan(hang_ms=round(HANG_SECONDS * 1000))).start() for _ in stream.runs]
    try:
        senders = [Sender(run, proxy) for run, proxy in zip(runs, proxies, strict=True)]
        _send(broker, stream, senders, show)
        # A fault that is still armed strikes what is sent now: on a busy machine a client may only just have connected.
        for sender in senders:
            sender.settle()
    finally:
        for proxy in proxies:
            proxy.stop()
    for run, proxy in zip(runs, proxies, strict=True):
        run.connections = proxy.connections
        run.struck = {str(fault): times for fault, times in proxy.fired.items()}
        run.copies = copies(read(run.topic, broker.bootstrap).elements(), len(payments))
    stream.absorbed = broker.duplicates()
    return stream


def _send(
    broker: CountedBroker,
    stream: Stream,
    senders: Sequence[Sender],
    show: Callable[[Sample, Strike | None], None],
) -> None:
    """Send the payments at their pace, whatever happens, and cause the faults at their times."""
    values = [payment.encoded() for payment in stream.payments]
    waiting = list(stream.strikes)
    begun = time.monotonic()
    sent, sampled_at = 0, NEVER
    while sent < len(values):
        now = time.monotonic() - begun
        while waiting and waiting[0].at_seconds <= now:
            strike = waiting.pop(0)
            for sender in senders:
                # Only requests with payments are struck. A client on a busy machine connects so often that all faults
                # could strike what it asks first, and then nothing would be lost or doubled.
                sender.proxy.plan.arm(strike.fault, api_key=PRODUCE)
            show(_sample(broker, senders, now, sent), strike)
        due = min(len(values), int(now * stream.per_second))
        for payment, value in zip(stream.payments[sent:due], values[sent:due], strict=True):
            for sender in senders:
                sender.send(payment, value, begun)
        sent = due
        for sender in senders:
            sender.hear()
        if now - sampled_at >= SAMPLE_SECONDS:
            sampled_at = now
            stream.samples.append(_sample(broker, senders, now, sent))
            show(stream.samples[-1], None)
        time.sleep(TICK_SECONDS)


def _sample(broker: CountedBroker, senders: Sequence[Sender], at_seconds: float, sent: int) -> Sample:
    return Sample(at_seconds, sent, tuple(sender.acknowledged for sender in senders), broker.duplicates())
