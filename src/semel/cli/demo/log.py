"""`semel demo log`: the promise kept before the reader's eyes, with real clients, a real process and real faults.

A story in seven parts. Each does to a broker what life does to brokers, counts what came of it, and says whether the
promise held; the numbers are counted, never assumed. It runs on a directory of its own and touches nothing else. It
must never say that something held which it did not look at.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.cli.demo.log_transactions import Billing
from semel.cli.demo.stage import CountedBroker, Page, read
from semel.client import LATEST, Isolation, TopicPartition, admin, from_options
from semel.client.cluster import Cluster
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import INIT_PRODUCER_ID, PRODUCE

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

# A burst that takes a few seconds, and the acknowledgements after which the broker is killed.
BURST_RECORDS: Final = 30_000
BURST_PARTITIONS: Final = 4
KILLS_AT: Final = (8_000, 18_000)
# How often an answer to a batch of the burst is lost besides.
LOST_ANSWERS: Final = 0.02

_DELIVERY_SECONDS_MAX: Final = 25.0
_WINDOW_BATCHES: Final = 5
# What is written by hand has one timestamp, because a retry is sent with that of the first time.
_SENT_AT_MS: Final = time.time_ns() // 1_000_000


def tell() -> int:
    """From the first part to the sum; the exit code."""
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


class _Story:
    """The seven parts, and the sum."""

    def __init__(self, directory: str) -> None:
        self.broker = CountedBroker(os.path.join(directory, "data"), BURST_PARTITIONS)
        self.held = True
        self._page = Page(sys.stdout.isatty())
        self._acknowledged = 0
        self._stored = 0
        self._lost = 0
        self._doubled = 0

    def tell(self) -> None:
        began = time.monotonic()
        page = self._page
        page.title("semel demo log: exactly once, on trial")
        self.broker.start()
        page.say(f"`semel serve` runs as process {self.broker.process_id}, ready in {self.broker.ready_seconds:.2f} s.")
        page.say("Every acknowledgement below was given after the disk had the record.")
        with ChaosProxy(self.broker.bootstrap) as proxy:
            self._lose_an_answer(proxy)
        with _handmade_producer(self.broker) as producer:
            offsets = self._replay(producer)
            self._leave_a_gap(producer)
        self._kill_in_a_burst()
        with _handmade_producer(self.broker, continues=producer) as again:
            self._replay_after_the_kill(again, offsets)
        with Billing(self.broker) as billing:
            self._bill_through_kills(billing)
            self._wake_a_zombie(billing)
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
        stored = read("payments", self.broker.bootstrap)
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
        stored = read("burst", self.broker.bootstrap)
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
        self.broker.note_counts()
        killed = self.broker.process_id
        self.broker.kill()
        self.broker.start()
        self._page.say(
            f"  kill -9 {killed} after {acknowledged:,} acknowledgements, {in_flight:,} records under way; "
            f"ready again in {self.broker.ready_seconds:.2f} s",
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
        self._account(sent, read("handmade", self.broker.bootstrap))

    def _bill_through_kills(self, billing: Billing) -> None:
        page = self._page
        page.part("Consume, transform, produce: killed in the middle")
        page.say(
            f"A worker turns {billing.orders:,} orders into invoices, in transactions of {billing.per_transaction}:"
        )
        page.say("the invoices and how far it has read are committed together. It is killed, or the broker is, when")
        page.say("the invoices of a transaction are written and the transaction is not committed.")
        for killed in billing.work_through_kills():
            page.say(f"  {killed}", faint=True)
        orders, invoices = billing.expected(), billing.invoices()
        written = billing.invoices(committed=False)
        page.figures(
            kills=billing.kills,
            orders=orders.total(),
            invoices_written=written.total(),
            of_them_committed=invoices.total(),
        )
        self._promise(
            "who reads committed records sees an invoice for each order, each once",
            billing.kills == billing.KILLS and invoices == orders and written.total() > orders.total(),
        )
        self._account(orders, invoices)

    def _wake_a_zombie(self, billing: Billing) -> None:
        page = self._page
        page.part("A zombie wakes up")
        page.say("The worker falls asleep with a transaction open. Another one takes its place and does the work.")
        page.say("Then the first one wakes up, and commits.")
        before = billing.invoices()
        refusal = billing.wake_a_zombie()
        after = billing.invoices()
        page.figures(answer=refusal, new_orders=billing.late_orders, new_invoices=(after - before).total())
        self._promise(
            "its commit is refused, and every order has one invoice",
            refusal in billing.REFUSALS and after == billing.expected(),
        )
        self._account(billing.expected() - before, after - before)

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


class _Handmade:
    """An idempotent producer whose numbers are chosen by hand, one record a batch."""

    def __init__(self, cluster: Cluster, identity: tuple[int, int]) -> None:
        self.identity = identity
        self._cluster = cluster
        self._where = TopicPartition("handmade", 0)

    def send(self, sequence: int) -> tuple[ErrorCode, int]:
        """The broker's answer to the batch of this number: an error code and an offset."""
        producer_id, epoch = self.identity
        record = Record(_handmade_value(sequence), timestamp_ms=_SENT_AT_MS)
        batch = encode_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = self._cluster.ask(
            self._cluster.leader_of(self._where),
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
        [(_, end)] = self._cluster.offsets([self._where], LATEST, Isolation.READ_COMMITTED)
        return end or 0


def _handmade_value(sequence: int) -> bytes:
    return b"batch %d" % sequence


@contextlib.contextmanager
def _handmade_producer(broker: CountedBroker, continues: _Handmade | None = None) -> Iterator[_Handmade]:
    """A producer made by hand: a new one, or one from before on a new connection."""
    with Cluster(from_options({"kafka.bootstrap.servers": broker.bootstrap})) as cluster:
        if continues is not None:
            yield _Handmade(cluster, continues.identity)
            return
        admin.create_topic(cluster, "handmade", 1, {})
        answer: Any = cluster.ask_once(
            INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        yield _Handmade(cluster, (answer.producer_id, answer.producer_epoch))


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
