"""A broker that compacts when it is told to, on a clock that stands still, and what its clients see."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from histories import NOW_MS, Kept, records_of

from asking import Asker
from read_committed import batches_in, unaborted
from semel.log.broker.broker import Broker
from semel.log.broker.disk_thread import DiskThread, JobError
from semel.log.storage.files import Files, MemoryFiles
from semel.testing.broker import FaultyBroker
from semel.wire.batch import read_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
)

TOPIC = "orders"
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "1024", "min_cleanable_dirty_ratio": "0"}


class CompactingBroker(FaultyBroker):
    """Time passes when a test says so."""

    def __init__(self, files: Files | None = None, **settings: Any) -> None:
        self.now_ms = NOW_MS
        super().__init__(files=files or MemoryFiles(), clock=lambda: self.now_ms / 1000, **settings)

    def run(self, work: Callable[[Broker], Any]) -> Any:
        """Do something on the event loop."""

        async def done() -> Any:
            return work(self._broker)

        return self._call(done())

    @property
    def metrics(self) -> Any:
        return self._broker.metrics


class HeldThreads:
    """The threads of a broker, one of which does nothing before it is told to."""

    def __init__(self, name: str = "semel-compact") -> None:
        self.held: list[tuple[Callable[[], None], Callable[[JobError], None]]] = []
        self.has_a_job = threading.Event()
        self._name = name

    def __call__(self, name: str, loop: asyncio.AbstractEventLoop) -> DiskThread:
        thread = DiskThread(name, loop)
        if name == self._name:
            thread.run = self._hold  # type: ignore[method-assign]
        return thread

    def _hold(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        self.held.append((job, done))
        self.has_a_job.set()

    def step(self, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Do one job, then something else, then hand over the outcome; False if there is no job. On the event loop."""
        if not self.held:
            return False
        job, done = self.held.pop(0)
        outcome: JobError = None
        try:
            job()
        except Exception as error:
            outcome = error
        meanwhile()
        done(outcome)
        return True


def record(key: bytes, value: bytes | None = b"1", size: int = 300, timestamp_ms: int = NOW_MS) -> Record:
    return Record(key=key, value=None if value is None else value.ljust(size), timestamp_ms=timestamp_ms)


def fill(ask: Asker, rounds: int = 4, keys: int = 5, topic: str = TOPIC) -> None:
    """The same keys again and again, in batches of two."""
    for number in range(rounds * keys):
        ask.produce(
            topic,
            [record(b"%d" % (number % keys), b"%d" % number), record(b"%d" % ((number + 1) % keys), b"%d!" % number)],
        )


def consumed(ask: Asker, offset: int = 0, *, isolation: int = 0, topic: str = TOPIC) -> list[Kept]:
    """What a consumer is shown that begins at an offset and goes on to the end, as clients do it."""
    found: list[Kept] = []
    while True:
        told = ask.fetch(topic, offset, isolation_level=isolation)
        assert told.error_code == 0
        if not told.records:
            end = told.last_stable_offset if isolation else told.high_watermark
            assert offset >= end, f"at {offset}, and never told how to come to {end}"
            return found
        batches = list(batches_in(told.records))
        aborted = [(one.producer_id, one.first_offset) for one in told.aborted_transactions or ()]
        found += [record for record in records_of(unaborted(batches, aborted)) if record.offset >= offset]
        for stored in batches:
            assert read_header(stored).next_offset > offset
            offset = read_header(stored).next_offset


def offset_at(ask: Asker, timestamp: int, *, topic: str = TOPIC) -> tuple[int, int]:
    """The offset and time that ListOffsets answers."""
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    answer = ask(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": [asked]}])
    (told,) = answer.topics[0].partitions
    assert told.error_code == 0
    return told.offset, told.timestamp


class Transactional:
    """A transactional producer of the first version of the protocol."""

    def __init__(self, ask: Asker, transactional_id: str) -> None:
        self._ask = ask
        self._id = transactional_id
        claimed = ask(
            INIT_PRODUCER_ID,
            4,
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert claimed.error_code == 0
        self.producer_id = claimed.producer_id
        self._epoch = claimed.producer_epoch
        self._sequence = 0

    def send(self, records: list[Any], topic: str = TOPIC) -> None:
        self._ask(
            ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        sequence = self._sequence
        self._sequence += len(records)
        batch = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = self._ask(PRODUCE, 9, transactional_id=self._id, acks=-1, timeout_ms=1000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def end(self, committed: bool) -> None:
        ended = self._ask(
            END_TXN,
            3,
            transactional_id=self._id,
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        assert ended.error_code == 0
