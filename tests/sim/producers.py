"""Idempotent producers: five batches in flight, sent again with the same numbers until there is an answer.

As librdkafka and Java's client do it: batches are pipelined on one connection; when it breaks, or an answer does not
come, everything in flight is sent again in its order on another one, while the first copies may yet arrive. What was
acknowledged is now and then asked for once more: a repetition of any of the last five batches has to be answered with
the original's offset.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import INIT_PRODUCER_ID, PRODUCE
from sim.client import Client, Unanswered
from sim.compacted import keyed_record
from sim.world import World

IN_FLIGHT_MAX: Final = 5
RECORD_TIME_MS: Final = 1_800_000_000_000
# What a client sends again after a while.
RETRIABLE: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})


class Refused(Exception):
    """The broker will not take it, now or later."""

    def __init__(self, error: int) -> None:
        super().__init__(f"error {error}")
        self.error = error


@dataclass(slots=True)
class Batch:
    """A batch with its place in the producer's count, and where it went once it is known."""

    partition: int
    values: list[str]
    encoded: bytes
    sent_us: int
    offset: int | None = None


@dataclass(slots=True)
class Lane:
    """What a producer knows of one partition."""

    next_number: int = 0
    acknowledged: deque[Batch] = field(default_factory=lambda: deque(maxlen=IN_FLIGHT_MAX))


class SequencedProducer(Client):
    """Numbers batches and brings them to a topic's partitions, each once and in order, whatever it takes."""

    def __init__(self, world: World, name: str, topic: str, partitions: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.partitions = partitions
        self.producer_id = -1
        self.producer_epoch = -1
        self.transactional_id: str | None = None
        self.version = 9
        self.is_keyed = False
        self.lanes: list[Lane] = []
        self.unacknowledged: deque[Batch] = deque()

    def begin_anew(self, producer_id: int, producer_epoch: int) -> None:
        """With a new id or epoch every partition's count begins at 0."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.lanes = [Lane() for _ in range(self.partitions)]
        self.unacknowledged.clear()

    def add(self, partition: int, values: Sequence[str], origins: Sequence[str] | None = None) -> None:
        """One more batch to be delivered. `origins` says of what the values are copies."""
        lane = self.lanes[partition]
        filling = "." * self.random.choice((0, 0, 50, 400))
        records = [
            self._record(value, f"{value} {origin} {filling}".encode())
            for value, origin in zip(values, origins or [""] * len(values), strict=True)
        ]
        encoded = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=lane.next_number,
            transactional=self.transactional_id is not None,
        )
        lane.next_number += len(values)
        self.note("send", partition=partition, values=list(values))
        self.unacknowledged.append(Batch(partition, list(values), bytes(encoded), self.world.now_us()))

    def _record(self, value: str, text: bytes) -> Record:
        if self.is_keyed:
            return keyed_record(value, text, RECORD_TIME_MS)
        return Record(text, timestamp_ms=RECORD_TIME_MS)

    async def deliver(self) -> None:
        """Send all that was not acknowledged, in order; keep what has to be sent again."""
        sent, self.unacknowledged = self.unacknowledged, deque()
        try:
            posted = [await self.post_batch(batch) for batch in sent]
        except Unanswered:
            self.unacknowledged = sent
            await self.pause()
            return
        stuck: set[int] = set()
        for place, batch in enumerate(sent):
            try:
                answer = await self.answer(posted[place])
            except Unanswered:
                self.unacknowledged.extend(list(sent)[place:])
                return
            (appended,) = answer.responses[0].partition_responses
            if appended.error_code == 0:
                self._acknowledge(batch, appended.base_offset)
                continue
            if appended.error_code not in RETRIABLE:
                raise Refused(int(appended.error_code))
            if appended.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.partition not in stuck:
                self.world.anomaly("gap for the next number", f"{self.name} partition {batch.partition} {batch.values}")
            stuck.add(batch.partition)
            self.unacknowledged.append(batch)

    async def post_batch(self, batch: Batch) -> Any:
        data = [{"name": self.topic, "partition_data": [{"index": batch.partition, "records": batch.encoded}]}]
        return await self.post(
            PRODUCE, self.version, transactional_id=self.transactional_id, acks=-1, timeout_ms=1000, topic_data=data
        )

    def _acknowledge(self, batch: Batch, offset: int) -> None:
        batch.offset = offset
        self.lanes[batch.partition].acknowledged.append(batch)
        self.note(
            "acked",
            topic=self.topic,
            partition=batch.partition,
            offset=offset,
            values=batch.values,
            sent_us=batch.sent_us,
            owner=(self.transactional_id, self.producer_id, self.producer_epoch),
        )


class IdempotentProducer(SequencedProducer):
    """Produces to all partitions of a topic until all has been delivered."""

    def __init__(self, world: World, name: str, topic: str, partitions: int) -> None:
        super().__init__(world, name, topic, partitions)
        self.version = self.random.choice((3, 5, 7, 8, 9, 10, 11, 12))
        self._counts = [0] * partitions

    async def live(self, batches: int) -> None:
        """Deliver so many batches."""
        await self._begin()
        left = batches
        while left or self.unacknowledged:
            for _ in range(min(self.random.randint(1, IN_FLIGHT_MAX) - len(self.unacknowledged), left)):
                self._add_some()
                left -= 1
            await self.deliver()
            if self.random.random() < 0.1:
                await self._repeat()
            await self.pause(0.05)
        self.note("done")

    async def _begin(self) -> None:
        while True:
            answer = await self.insist(
                INIT_PRODUCER_ID,
                4,
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            if answer.error_code == 0:
                self.begin_anew(answer.producer_id, answer.producer_epoch)
                self.note("began", producer_id=self.producer_id)
                return
            await self.pause()

    def _add_some(self) -> None:
        partition = self.random.randrange(self.partitions)
        first, count = self._counts[partition], self.random.choice((1, 1, 2, 5))
        self._counts[partition] += count
        self.add(partition, [self.value_of(partition, number) for number in range(first, first + count)])

    def value_of(self, partition: int, number: int) -> str:
        return f"{self.name}/{partition}/{number}"

    async def _repeat(self) -> None:
        """Send one of the last five again, as if its answer had been lost; nothing newer is in flight."""
        lane = self.random.choice(self.lanes)
        if not lane.acknowledged or any(b.partition == lane.acknowledged[0].partition for b in self.unacknowledged):
            return
        batch = self.random.choice(lane.acknowledged)
        try:
            answer = await self.answer(await self.post_batch(batch))
        except Unanswered:
            return
        self.world.fired["repeated on purpose"] += 1
        (appended,) = answer.responses[0].partition_responses
        self.note("repeated", partition=batch.partition, offset=appended.base_offset, values=batch.values)
        if appended.error_code == 0 and appended.base_offset != batch.offset:
            self.world.anomaly("repetition elsewhere", f"{batch.values} at {appended.base_offset}, was {batch.offset}")
        elif appended.error_code not in (0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID):
            self.world.anomaly("repetition refused", f"{batch.values}: {appended.error_code!r}")
