"""Copies records by transactions while workers and broker are killed: nothing may be lost, doubled or out of order.

Workers read numbered records, write a copy of each and commit their offsets, all in one transaction. Workers and broker
are killed by SIGKILL, whenever a reader of committed records has come to a point that the seed chose. At the end the
copy is compared with the original, both as the reader saw it on the way and as it is stored. This file must never know
how the broker works inside.
"""

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from semel.chaos.copy_worker import SOURCE, TARGET, copy_of
from semel.chaos.topic_reader import POLL_SECONDS, READ_MESSAGES_MAX, reader_of, to_the_end
from semel.chaos.undisturbed import undisturbed

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

PARTITIONS: Final = 4
# Kills happen between soon after the beginning and shortly before the end, so that there is always work to interrupt.
FIRST_KILL: Final = 0.02
LAST_KILL: Final = 0.95
# A kill comes a random time later, somewhere in a transaction, and not just when the previous one became visible.
KILL_AFTER_SECONDS_MAX: Final = 0.05
# After this time without progress, the copy counts as stopped. A dead member stays in its group for its session timeout
# of 6 s, and a broker is back in one second.
PATIENCE_SECONDS: Final = 60.0
BROKER: Final = -1

# A partition's numbers, in the order of the log; None for a record that is no copy.
_Log = list[int | None]


class KillableBroker(Protocol):
    """A broker that can be killed, and restarts with its data. A client that starts is told its present address."""

    @property
    def bootstrap(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Kill:
    """The process to kill (the number of a worker, or the broker), the number of copies that the reader sees before,
    and the delay after that.
    """

    at_records: int
    victim: int
    after_seconds: float


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How many records are copied, by how many workers, in transactions of what size, and how often each process is
    killed.
    """

    records: int
    workers: int
    transaction_records: int
    kills: int
    seed: int

    def faults(self) -> list[Kill]:
        """The kills in their order; the same plan gives the same kills."""
        chance = random.Random(f"{self.seed}/copy")
        victims = [victim for victim in (BROKER, *range(self.workers)) for _ in range(self.kills)]
        chance.shuffle(victims)
        points = sorted(round(self.records * chance.uniform(FIRST_KILL, LAST_KILL)) for _ in victims)
        return [
            Kill(point, victim, chance.uniform(0.0, KILL_AFTER_SECONDS_MAX))
            for point, victim in zip(points, victims, strict=True)
        ]


@dataclass(slots=True)
class CopyReport:
    """The result. Each count from `lost` on is a violation if it is above zero."""

    plan: CopyPlan
    seconds: float = 0.0
    copied: int = 0
    # Records of aborted transactions, which nobody may read.
    aborted: int = 0
    workers_killed: int = 0
    broker_killed: int = 0
    # The errors with which workers gave up by themselves. They were restarted.
    endings: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    foreign: int = 0
    # How many records the reader saw differently from those that are stored in the end.
    seen_otherwise: int = 0
    kills_missed: int = 0

    @property
    def violations(self) -> list[str]:
        """Why the run failed; empty if it did not."""
        return [
            f"{count} {what}"
            for what, count in (
                ("records were lost", self.lost),
                ("records are stored twice", self.doubled),
                ("records are out of order", self.out_of_order),
                ("records are copies of nothing", self.foreign),
                ("records were read otherwise than they are stored", self.seen_otherwise),
                ("kills never struck", self.kills_missed),
            )
            if count
        ]

    def lines(self) -> list[str]:
        """The figures, zeros included, for people."""
        figures: list[tuple[str, object]] = [
            ("seed", self.plan.seed),
            ("seconds", f"{self.seconds:.1f}"),
            ("records", self.plan.records),
            ("per transaction", self.plan.transaction_records),
            ("workers", self.plan.workers),
            ("workers killed", self.workers_killed),
            ("broker killed", self.broker_killed),
            ("workers gave up", len(self.endings)),
            *(("", f"{times} x {error}") for error, times in Counter(self.endings).items()),
            ("records aborted", self.aborted),
            ("records copied", self.copied),
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("out of order", self.out_of_order),
            ("foreign", self.foreign),
            ("seen otherwise", self.seen_otherwise),
            ("kills missed", self.kills_missed),
        ]
        return [f"{name:<20} {value}" for name, value in figures]


def copy(broker: KillableBroker, plan: CopyPlan, *, note: Callable[[str], None]) -> CopyReport:
    """Copy, kill, compare. The broker should be empty."""
    report = CopyReport(plan)
    write_source(broker.bootstrap, plan.records)
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        workers = []
        for number in range(plan.workers):
            errors = stack.enter_context(tempfile.TemporaryFile())
            workers.append(_Worker(number, broker, plan.transaction_records, errors))
            stack.callback(workers[-1].kill)
        for worker in workers:
            worker.start()
        polled = _follow(broker, plan, workers, report, note)
    report.seconds = time.monotonic() - begun
    stored = _logs(broker.bootstrap)
    compare(report, stored, polled)
    report.aborted = sum(map(len, _logs(broker.bootstrap, committed=False))) - sum(map(len, stored))
    return report


class _Worker:
    """One worker: processes with the same name, one after the other."""

    def __init__(self, number: int, broker: KillableBroker, transaction_records: int, errors: BinaryIO) -> None:
        """`errors` is a file for what the current process writes to its standard error."""
        self._broker = broker
        self._errors = errors
        self._arguments = [str(number), str(transaction_records)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its next process."""
        self._errors.seek(0)
        self._errors.truncate()
        command = [sys.executable, "-m", "semel.chaos.copy_worker", self._broker.bootstrap, *self._arguments]
        with undisturbed():
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self._errors)

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def error(self) -> str:
        """The last line that the process has written to its standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else "no error was printed"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _follow(
    broker: KillableBroker,
    plan: CopyPlan,
    workers: Sequence[_Worker],
    report: CopyReport,
    note: Callable[[str], None],
) -> list[_Log]:
    """Read the copies and kill processes at their points, until everything is copied or nothing new arrives; returns
    the copies.
    """
    polled: list[_Log] = [[] for _ in range(PARTITIONS)]
    waiting = plan.faults()
    reader = reader_of(broker.bootstrap, TARGET)
    copied = 0
    last_came = time.monotonic()
    try:
        while copied < plan.records and time.monotonic() - last_came < PATIENCE_SECONDS:
            for message in _messages(reader.consume(READ_MESSAGES_MAX, POLL_SECONDS)):
                polled[message.partition() or 0].append(_number_in(message))
                copied += 1
                last_came = time.monotonic()
            if waiting and copied >= waiting[0].at_records:
                _strike(waiting.pop(0), broker, workers, report)
            for worker in workers:
                if worker.has_ended():
                    report.endings.append(worker.error)
                    worker.start()
            note(f"{copied} of {plan.records} copied, {report.workers_killed + report.broker_killed} kills")
    finally:
        reader.close()
    report.kills_missed = len(waiting)
    return polled


def _strike(kill: Kill, broker: KillableBroker, workers: Sequence[_Worker], report: CopyReport) -> None:
    time.sleep(kill.after_seconds)
    if kill.victim == BROKER:
        broker.kill()
        broker.start()
        report.broker_killed += 1
    else:
        workers[kill.victim].kill()
        workers[kill.victim].start()
        report.workers_killed += 1


def compare(report: CopyReport, stored: Sequence[_Log], polled: Sequence[_Log]) -> None:
    for partition, log in enumerate(stored):
        numbers = [number for number in log if number is not None]
        distinct = set(numbers)
        wanted = set(range(partition, report.plan.records, PARTITIONS))
        report.copied += len(distinct & wanted)
        report.lost += len(wanted - distinct)
        report.doubled += len(numbers) - len(distinct)
        report.foreign += len(log) - len(numbers) + len(distinct - wanted)
        report.out_of_order += sum(later < earlier for earlier, later in pairwise(numbers))
        differing = sum(one != other for one, other in zip(log, polled[partition], strict=False))
        report.seen_otherwise += differing + abs(len(log) - len(polled[partition]))


def write_source(bootstrap: str, records: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in (SOURCE, TARGET)]).values():
        created.result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(records):
        _hand_over(producer, number)
        if number % READ_MESSAGES_MAX == 0:
            producer.poll(0)
    if producer.flush(PATIENCE_SECONDS):
        raise RuntimeError("the records to copy could not be written")


def _hand_over(producer: "Producer", number: int) -> None:
    last_full = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
            return
        except BufferError:
            # The client's queue is full; it takes more only after its answers are polled.
            if time.monotonic() > last_full:
                raise RuntimeError("the records to copy could not be written") from None
            producer.poll(POLL_SECONDS)


def _logs(bootstrap: str, *, committed: bool = True) -> list[_Log]:
    """The numbers in each partition of the copy now."""
    logs: list[_Log] = [[] for _ in range(PARTITIONS)]
    for message in to_the_end(bootstrap, TARGET, committed=committed):
        logs[message.partition() or 0].append(_number_in(message))
    return logs


def _messages(polled: "list[Message]") -> "Iterator[Message]":
    """Only the records, without events such as the end of a partition or a lost connection."""
    return (message for message in polled if message.error() is None)


def _number_in(message: "Message") -> int | None:
    value = message.value() or b""
    number = value.rpartition(b" ")[2]
    return int(number) if number.isdigit() and copy_of(number) == value else None
