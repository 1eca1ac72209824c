"""Two idempotent producers on a network that loses answers: nothing may be lost, doubled or out of order.

The producers are ordinary ones (librdkafka) and do not know about the faults. They number their records; when time is
up the faults stop, the remaining records arrive, and the log, read without the proxy, is compared with the records that
were sent and acknowledged. A run in which a kind of fault never struck, or in which the broker met no duplicate, proves
nothing and fails as well. This file must never know how the broker works inside.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.chaos.topic_reader import to_the_end

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

TOPIC: Final = "chaos"
PARTITIONS: Final = 3
PRODUCERS: Final = 2
# How many records one producer may have under way: enough for many batches in flight, but few enough to keep a steady
# pace.
UNDER_WAY_MAX: Final = 2_000
# How long faults that have not struck yet, and the remaining answers after them, are waited for.
PATIENCE_SECONDS: Final = 60.0

# The odds for each message that a fault can strike. A connection lasts a few dozen requests, so that producers
# reconnect all the time but still make progress.
ODDS: Final = {
    Fault.DROP_ACK: 0.03,
    Fault.DELAY: 0.02,
    Fault.TRUNCATE: 0.01,
    Fault.CUT: 0.02,
    Fault.RESET: 0.01,
    Fault.DRIBBLE: 0.02,
}

# The partition and the offset at which a record was acknowledged, or is stored.
_Place = tuple[int, int]


@dataclass(slots=True)
class Report:
    """The result of a run, in records. Each count from `lost` to `unanswered` is a violation if it is above zero."""

    seed: int
    seconds: float
    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    # Not stored where the acknowledgement said.
    misplaced: int = 0
    # Refused, or still without an answer at the end.
    unanswered: int = 0
    duplicates_absorbed: int = 0
    connections: int = 0
    fired: Counter[Fault] = field(default_factory=Counter)

    @property
    def violations(self) -> list[str]:
        """Why the run failed; empty if it did not."""
        broken = [
            f"{count} records {what}"
            for what, count in (
                ("were lost", self.lost),
                ("are stored twice", self.doubled),
                ("are out of order", self.out_of_order),
                ("are not where their acknowledgement said", self.misplaced),
                ("were never acknowledged", self.unanswered),
            )
            if count
        ]
        if not self.acknowledged:
            broken.append("nothing was acknowledged, so nothing was tried")
        broken += [f"the fault {fault} never struck" for fault in ODDS if not self.fired[fault]]
        if not self.duplicates_absorbed:
            broken.append("the broker met no duplicate")
        return broken

    def lines(self) -> list[str]:
        """The figures, zeros included, for people."""
        figures: list[tuple[str, object]] = [
            ("seed", self.seed),
            ("seconds", f"{self.seconds:g}"),
            ("records sent", self.sent),
            ("acknowledged", self.acknowledged),
            ("stored", self.stored),
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("out of order", self.out_of_order),
            ("misplaced", self.misplaced),
            ("unanswered", self.unanswered),
            ("connections made", self.connections),
            *((f"fault {fault}", self.fired[fault]) for fault in ODDS),
            ("duplicates absorbed", self.duplicates_absorbed),
        ]
        return [f"{name:<20} {value}" for name, value in figures]


def run(
    bootstrap: str, duplicates_absorbed: Callable[[], int], *, seconds: float, seed: int, note: Callable[[str], None]
) -> Report:
    """Produce through a proxy in front of `bootstrap`, then compare. The broker should be empty. A run takes this time,
    and longer on a busy machine, where it ends when every kind of fault has struck.
    """
    plan = FaultPlan(ODDS, seed=seed)
    report = Report(seed, seconds)
    _create_topic(bootstrap)
    with ChaosProxy(bootstrap, plan) as proxy:
        senders = [_Sender(number, proxy.bootstrap) for number in range(PRODUCERS)]
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds or (
            passed < seconds + PATIENCE_SECONDS and not all(plan.fired[fault] for fault in ODDS)
        ):
            for sender in senders:
                sender.work()
            note(f"{passed:.0f} of {seconds:g} s, {sum(plan.fired.values())} faults")
        plan.calm()
        for sender in senders:
            sender.finish()
        report.fired = proxy.fired
        report.connections = proxy.connections
    report.duplicates_absorbed = duplicates_absorbed()
    _compare(report, senders, list(_stored(bootstrap)))
    return report


class _Sender:
    """One producer, and the acknowledgements of its records."""

    def __init__(self, number: int, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self.number = number
        self.sent = 0
        self.refused = 0
        self.acknowledged: dict[int, _Place] = {}
        self._producer: Producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"chaos-{number}",
                "enable.idempotence": True,
                "linger.ms": 2,
                # Small batches make many requests for faults to strike.
                "batch.num.messages": 50,
                "message.timeout.ms": 0,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 20,
                "log_level": 0,
            }
        )

    def work(self) -> None:
        """Send a few more records, unless too many are under way, and collect the answers."""
        for _ in range(20):
            if self.sent - len(self.acknowledged) - self.refused >= UNDER_WAY_MAX:
                break
            self._send(self.sent)
            self.sent += 1
        self._producer.poll(0.002)

    def finish(self) -> None:
        self._producer.flush(PATIENCE_SECONDS)

    def _send(self, number: int) -> None:
        def answered(error: "KafkaError | None", message: "Message") -> None:
            if error is not None:
                self.refused += 1
            else:
                self.acknowledged[number] = (message.partition() or 0, message.offset() or 0)

        value = f"{self.number} {number}".encode()
        self._producer.produce(TOPIC, value, partition=number % PARTITIONS, callback=answered)


# The producer, the number that it gave the record, and where the record is stored.
_Stored = tuple[int, int, _Place]


def _compare(report: Report, senders: Sequence[_Sender], stored: Sequence[_Stored]) -> None:
    places: dict[tuple[int, int], list[_Place]] = {}
    last: dict[tuple[int, int], int] = {}
    for producer, number, place in stored:
        places.setdefault((producer, number), []).append(place)
        row = (producer, place[0])
        report.out_of_order += number <= last.get(row, -1)
        last[row] = number
    report.stored = len(stored)
    report.doubled = sum(len(found_at) > 1 for found_at in places.values())
    for sender in senders:
        report.sent += sender.sent
        report.acknowledged += len(sender.acknowledged)
        for number, place in sender.acknowledged.items():
            found_at = places.get((sender.number, number), [])
            report.lost += not found_at
            report.misplaced += bool(found_at) and place not in found_at
    report.unanswered = report.sent - report.acknowledged


def _create_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        created.result(PATIENCE_SECONDS)


def _stored(bootstrap: str) -> Iterator[_Stored]:
    """Every record of the topic, those of a partition in the order of the log."""
    for message in to_the_end(bootstrap, TOPIC):
        producer, _, number = (message.value() or b"").partition(b" ")
        yield int(producer), int(number), (message.partition() or 0, message.offset() or 0)
