"""`semel demo`: the promise kept before the reader's eyes, with real clients, a real process and real faults.

A story in five parts. Each does to a broker what life does to brokers, counts what came of it, and says whether the
promise held; the numbers are counted, never assumed. It runs on a directory of its own and touches nothing else. It
must never say that something held which it did not look at.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.cli.client import EARLIEST, LATEST, Client
from semel.cli.errors import Failure
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import CREATE_TOPICS, INIT_PRODUCER_ID, PRODUCE

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

EXAMPLE: Final = "  semel demo"

# A burst that takes a few seconds, and the acknowledgements after which the broker is killed.
BURST_RECORDS: Final = 30_000
BURST_PARTITIONS: Final = 4
KILLS_AT: Final = (8_000, 18_000)
# How often an answer to a batch of the burst is lost besides.
LOST_ANSWERS: Final = 0.02

_READY_SECONDS_MAX: Final = 15.0
_DELIVERY_SECONDS_MAX: Final = 25.0
_WINDOW_BATCHES: Final = 5
# What is written by hand has one timestamp, because a retry is sent with that of the first time.
_SENT_AT_MS: Final = time.time_ns() // 1_000_000
_READY: Final = re.compile(r"semel ready on (\S+):(\d+) in (\S+) s")
_DUPLICATES: Final = re.compile(r'^semel_batches_total\{outcome="duplicate"\} (\d+)', re.MULTILINE)


def configure(parser: argparse.ArgumentParser) -> None:
    """There is nothing to choose: everybody sees the same story."""


def run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Failure("the demo uses confluent-kafka, which is not here: pip install confluent-kafka")
    directory = tempfile.mkdtemp(prefix="semel-demo-")
    story = _Story(directory)
    try:
        story.tell()
    finally:
        story.broker.kill()
        if story.held:
            shutil.rmtree(directory, ignore_errors=True)
    if not story.held:
        print(f"What is on disk was kept: semel dump {directory}")
    return 0 if story.held else 1


class _Broker:
    """`semel serve` as a process, killed and started again at the same addresses."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._port = 0
        self._metrics_port = _free_port()
        self._process: subprocess.Popen[str] | None = None
        # What the processes before this one had counted when they were killed.
        self._duplicates_before = 0
        self.ready_in = ""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def process_id(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Return when clients can connect."""
        command = [sys.executable, "-m", "semel", "serve", "--data", self._data, "--log-level", "error"]
        command += ["--listen", self.bootstrap, "--metrics", f"127.0.0.1:{self._metrics_port}"]
        command += ["--partitions", str(BURST_PARTITIONS)]
        process = self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stderr is not None
        # Whoever does not get ready is ended, and with it the wait for its line.
        patience = threading.Timer(_READY_SECONDS_MAX, process.kill)
        patience.start()
        line = process.stdout.readline()
        patience.cancel()
        ready = _READY.match(line)
        if ready is None:
            process.kill()
            raise Failure(f"semel serve did not start: {process.stderr.read().strip() or line.strip()}")
        self._port = int(ready[2])
        self.ready_in = ready[3]

    def kill(self) -> None:
        """End it as the kernel does: at once, whatever it was doing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()
            self._process = None

    def note_duplicates(self) -> None:
        """Remember the count of the process that is about to be killed."""
        self._duplicates_before = self.duplicates()

    def duplicates(self) -> int:
        """How many batches were recognised as repetitions, as the broker itself counts them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            found = _DUPLICATES.search(answer.read().decode())
        return self._duplicates_before + (int(found[1]) if found else 0)


class _Story:
    """The five parts, and the sum."""

    def __init__(self, directory: str) -> None:
        self.broker = _Broker(os.path.join(directory, "data"))
        self.held = True
        self._page = _Page(sys.stdout.isatty())
        self._acknowledged = 0
        self._stored = 0
        self._lost = 0
        self._doubled = 0

    def tell(self) -> None:
        began = time.monotonic()
        page = self._page
        page.title("semel demo: exactly once, on trial")
        self.broker.start()
        page.say(f"`semel serve` runs as process {self.broker.process_id}, ready in {self.broker.ready_in} s.")
        page.say("Every acknowledgement below was given after the disk had the record.")
        with ChaosProxy(self.broker.bootstrap) as proxy:
            self._lose_an_answer(proxy)
        with _handmade_producer(self.broker) as producer:
            offsets = self._replay(producer)
            self._leave_a_gap(producer)
        self._kill_in_a_burst()
        with _handmade_producer(self.broker, continues=producer) as again:
            self._replay_after_the_kill(again, offsets)
        self._sum_up(time.monotonic() - began)

    def _promise(self, text: str, kept: bool) -> None:
        self.held = self.held and kept
        self._page.verdict(text, kept)

    def _account(self, acknowledged: Counter[bytes], stored: Counter[bytes]) -> None:
        self._acknowledged += acknowledged.total()
        self._stored += stored.total()
        self._lost += (acknowledged - stored).total()
        self._doubled += stored.total() - len(stored)

    def _lose_an_answer(self, proxy: ChaosProxy) -> None:
        page = self._page
        page.part("A lost ACK")
        page.say("An idempotent confluent-kafka producer pays 30 EUR. The broker stores the record and answers; the")
        page.say("answer is lost on the way and the connection breaks. The client cannot know, and sends it again.")
        acknowledged: Counter[bytes] = Counter()
        proxy.arm(Fault.DROP_ACK)
        producer = _producer(proxy.bootstrap)
        producer.produce("payments", b"30 EUR", on_delivery=_count_into(acknowledged))
        producer.flush(_DELIVERY_SECONDS_MAX)
        stored = self._read("payments")
        lost_answers = proxy.fired[Fault.DROP_ACK]
        duplicates = self.broker.duplicates()
        page.figures(
            answers_lost=lost_answers,
            duplicates_recognised=duplicates,
            acknowledged=acknowledged.total(),
            stored=stored.total(),
        )
        self._promise(
            "sent twice, stored once, acknowledged",
            lost_answers == duplicates == 1 and acknowledged == stored == Counter([b"30 EUR"]),
        )
        self._account(acknowledged, stored)

    def _replay(self, producer: "_Handmade") -> list[int]:
        page = self._page
        page.part("The fifth-last batch again")
        page.say("A producer made by hand sends the batches 0 to 6, and then the fifth-last of them, 2, once more: a")
        page.say("retry that was stuck in the network while all the others were answered.")
        offsets = [producer.send(sequence)[1] for sequence in range(7)]
        before = producer.end()
        position = len(offsets) - _WINDOW_BATCHES
        error, offset = producer.send(position)
        page.figures(first_answer=offsets[position], answer_now=offset, records_before=before, after=producer.end())
        self._promise(
            "answered with its original offset, nothing written",
            error == ErrorCode.NONE and offset == offsets[position] and producer.end() == before == 7,
        )
        return offsets

    def _leave_a_gap(self, producer: "_Handmade") -> None:
        page = self._page
        page.part("A gap")
        page.say("The same producer leaves out batch 7 and sends 8. To store it would be to lose 7 or to swap the two.")
        before = producer.end()
        error, _ = producer.send(8)
        page.figures(answer=error.name, records_before=before, after=producer.end())
        self._promise(
            "refused, nothing written",
            error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and producer.end() == before,
        )

    def _kill_in_a_burst(self) -> None:
        page = self._page
        page.part("kill -9 in the middle of a burst")
        page.say(
            f"confluent-kafka sends {BURST_RECORDS:,} records to {BURST_PARTITIONS} partitions. On the way answers"
        )
        page.say(f"are lost, and {len(KILLS_AT)} times the broker is killed at once and started again.")
        acknowledged: Counter[bytes] = Counter()
        plan = FaultPlan({Fault.DROP_ACK: LOST_ANSWERS}, seed=1)
        with ChaosProxy(self.broker.bootstrap, plan) as proxy:
            producer = _producer(proxy.bootstrap, linger_ms=2, batch_records=100)
            kills = list(KILLS_AT)
            for number in range(BURST_RECORDS):
                producer.produce("burst", b"record %d" % number, on_delivery=_count_into(acknowledged))
                producer.poll(0)
                if number % 100 == 99:
                    # Not faster than the broker acknowledges, or all would be sent before the first kill.
                    while len(producer) > 3_000:
                        producer.poll(0.01)
                if kills and acknowledged.total() >= kills[0]:
                    del kills[0]
                    self._kill_and_restart(acknowledged.total(), len(producer))
            left = producer.flush(_DELIVERY_SECONDS_MAX)
            lost_answers = proxy.fired[Fault.DROP_ACK]
        stored = self._read("burst")
        page.figures(
            kills=len(KILLS_AT) - len(kills),
            answers_lost=lost_answers,
            acknowledged=acknowledged.total(),
            never_acknowledged=left,
            stored=stored.total(),
        )
        everything = Counter(b"record %d" % number for number in range(BURST_RECORDS))
        self._promise(
            "every acknowledged record is there, exactly once", not kills and stored == everything == acknowledged
        )
        self._account(acknowledged, stored)

    def _kill_and_restart(self, acknowledged: int, in_flight: int) -> None:
        self.broker.note_duplicates()
        killed = self.broker.process_id
        self.broker.kill()
        self.broker.start()
        self._page.say(
            f"  kill -9 {killed} after {acknowledged:,} acknowledgements, {in_flight:,} records under way; "
            f"ready again in {self.broker.ready_in} s",
            faint=True,
        )

    def _replay_after_the_kill(self, producer: "_Handmade", offsets: list[int]) -> None:
        page = self._page
        page.part("What the broker remembers after that")
        page.say("The producer made by hand sends its last five batches once more, to a broker that was killed since.")
        before = producer.end()
        last_five = range(len(offsets) - _WINDOW_BATCHES, len(offsets))
        answers = [producer.send(sequence) for sequence in last_five]
        page.figures(
            first_answers=" ".join(str(offsets[sequence]) for sequence in last_five),
            answers_now=" ".join(str(offset) for _, offset in answers),
            records_before=before,
            after=producer.end(),
        )
        self._promise(
            "all five recognised, at their original offsets",
            answers == [(ErrorCode.NONE, offsets[sequence]) for sequence in last_five] and producer.end() == before,
        )
        sent = Counter(_handmade_value(sequence) for sequence in range(len(offsets)))
        self._account(sent, self._read("handmade"))

    def _sum_up(self, seconds: float) -> None:
        duplicates = self.broker.duplicates()
        self._promise_of_the_sum(duplicates)
        self._page.end(
            f"acknowledged {self._acknowledged:,}   stored {self._stored:,}   lost {self._lost:,}   "
            f"doubled {self._doubled:,}   duplicates absorbed {duplicates:,}   ({seconds:.1f} s)",
            self.held,
        )

    def _promise_of_the_sum(self, duplicates: int) -> None:
        even = self._acknowledged == self._stored and self._lost == self._doubled == 0
        self.held = self.held and even and duplicates > 0

    def _read(self, topic: str) -> Counter[bytes]:
        """All that consumers get to see of a topic, through a real one, straight from the broker."""
        from confluent_kafka import Consumer, TopicPartition

        with Client(self.broker.bootstrap) as client:
            metadata = client.topic(topic)
            first = client.offsets(metadata, metadata.leaders, EARLIEST)
            behind = client.offsets(metadata, metadata.leaders, LATEST)
        wanted = sum(behind.values()) - sum(first.values())
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "demo",
                # It reads what it was assigned, and commits nothing.
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, partition, first[partition]) for partition in first])
        values: Counter[bytes] = Counter()
        deadline = time.monotonic() + _DELIVERY_SECONDS_MAX
        while values.total() < wanted and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error() is None:
                    values[message.value() or b""] += 1
        consumer.close()
        return values


class _Handmade:
    """An idempotent producer whose numbers are chosen by hand, one record a batch."""

    def __init__(self, client: Client, identity: tuple[int, int]) -> None:
        self.identity = identity
        self._client = client
        self._topic = client.topic("handmade")

    def send(self, sequence: int) -> tuple[ErrorCode, int]:
        """The broker's answer to the batch of this number: an error code and an offset."""
        producer_id, epoch = self.identity
        record = Record(_handmade_value(sequence), timestamp_ms=_SENT_AT_MS)
        batch = encode_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = self._client.leader(self._topic, 0).ask(
            PRODUCE,
            transactional_id=None,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": "handmade", "partition_data": [{"index": 0, "records": bytes(batch)}]}],
        )
        told = answer.responses[0].partition_responses[0]
        return ErrorCode(int(told.error_code)), int(told.base_offset)

    def end(self) -> int:
        """How many records the partition holds."""
        return self._client.offsets(self._topic, [0], LATEST)[0]


def _handmade_value(sequence: int) -> bytes:
    return b"batch %d" % sequence


@contextlib.contextmanager
def _handmade_producer(broker: _Broker, continues: _Handmade | None = None) -> Iterator[_Handmade]:
    """A producer made by hand: a new one, or one from before on a new connection."""
    with Client(broker.bootstrap) as client:
        if continues is not None:
            yield _Handmade(client, continues.identity)
            return
        wanted = {"name": "handmade", "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
        client.ask(CREATE_TOPICS, topics=[wanted], timeout=10_000, validate_only=False)
        answer: Any = client.ask(
            INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        yield _Handmade(client, (answer.producer_id, answer.producer_epoch))


def _producer(bootstrap: str, *, linger_ms: int = 0, batch_records: int = 10_000) -> "Producer":
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "batch.num.messages": batch_records,
            # Faults are what this is about; the client need not report them, and need not wait for long.
            "log_level": 0,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "delivery.timeout.ms": int(_DELIVERY_SECONDS_MAX * 1000),
        }
    )


def _count_into(acknowledged: Counter[bytes]) -> Any:
    def told(error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            acknowledged[message.value() or b""] += 1

    return told


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class _Page:
    """What the reader sees: plain text, and colours where there is a terminal."""

    def __init__(self, in_colour: bool) -> None:
        self._in_colour = in_colour and "NO_COLOR" not in os.environ
        self._parts = 0

    def title(self, text: str) -> None:
        self._print(self._style("1", text))

    def part(self, text: str) -> None:
        self._parts += 1
        self._print("\n" + self._style("1", f"{self._parts}. {text}"))

    def say(self, text: str, *, faint: bool = False) -> None:
        self._print("   " + (self._style("2", text) if faint else text))

    def figures(self, **figures: int | str) -> None:
        told = (
            f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name.replace('_', ' ')} {value}"
            for name, value in figures.items()
        )
        self.say("  " + "   ".join(told), faint=True)

    def verdict(self, text: str, kept: bool) -> None:
        self.say(f"{self._style('32', 'ok')}  {text}" if kept else f"{self._style('31', 'BROKEN')}  not so: {text}")

    def end(self, text: str, held: bool) -> None:
        self._print("\n" + self._style("1;32" if held else "1;31", text))

    def _print(self, text: str) -> None:
        # At once, because the reader watches it happen.
        print(text, flush=True)

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._in_colour else text
