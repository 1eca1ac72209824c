"""A broker that compacts when it is told to, on a clock that stands still, and what its clients see."""

import asyncio
from collections.abc import Callable
from typing import Any

from histories import NOW_MS, Kept, records_of

from asking import Asker
from semel.broker.broker import Broker
from semel.broker.disk_thread import DiskThread, Outcome
from semel.core.batch import read_header
from semel.storage.files import Files, MemoryFiles
from semel.testing.broker import FaultyBroker
from semel.wire.records import encode_batch
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FETCH,
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

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], None], Callable[[Outcome], None]]] = []

    def __call__(self, name: str, loop: asyncio.AbstractEventLoop) -> DiskThread:
        thread = DiskThread(name, loop)
        if name == "semel-compact":
            thread.run = self._hold  # type: ignore[method-assign]
        return thread

    def _hold(self, job: Callable[[], None], done: Callable[[Outcome], None]) -> None:
        self.held.append((job, done))

    def step(self, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Do one job, then something else, then hand over the outcome; False if there is no job. On the event loop."""
        if not self.held:
            return False
        job, done = self.held.pop(0)
        outcome: Outcome = None
        try:
            job()
        except Exception as error:
            outcome = error
        meanwhile()
        done(outcome)
        return True


def fetched(ask: Asker, offset: int = 0, *, isolation: int = 0, topic: str = TOPIC) -> tuple[bytes, Any]:
    """What one fetch from an offset brings, and the rest of its answer."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    answer = ask(
        FETCH,
        11,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    (told,) = answer.responses[0].partitions
    assert told.error_code == 0
    return bytes(told.records or b""), told


def consumed(ask: Asker, offset: int = 0, *, isolation: int = 0, topic: str = TOPIC) -> list[Kept]:
    """What a consumer is shown that begins at an offset and goes on to the end, as clients do it."""
    shown: list[Kept] = []
    while True:
        data, told = fetched(ask, offset, isolation=isolation, topic=topic)
        if not data:
            end = told.last_stable_offset if isolation else told.high_watermark
            assert offset >= end, f"at {offset}, and never told how to come to {end}"
            return shown
        waiting = sorted((aborted.first_offset, aborted.producer_id) for aborted in told.aborted_transactions or ())
        dropping: set[int] = set()
        at = 0
        while at < len(data):
            header = read_header(data, at)
            while waiting and waiting[0][0] <= header.next_offset - 1:
                dropping.add(waiting.pop(0)[1])
            for record in records_of([data[at : at + header.batch_bytes]]):
                if record.is_marker:
                    if record.key == b"\0\0\0\0":
                        dropping.discard(record.producer_id)
                elif record.offset >= offset and (not isolation or record.producer_id not in dropping):
                    shown.append(record)
            assert header.next_offset > offset
            offset = header.next_offset
            at += header.batch_bytes


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
            transaction_timeout=60_000,
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
        answer = self._ask(PRODUCE, 9, transactional_id=self._id, acks=-1, timeout=1000, topic_data=data)
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
