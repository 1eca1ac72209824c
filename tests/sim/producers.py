"""Idempotent producers: five batches in flight, sent again with the same numbers until there is an answer.

As librdkafka and Java's client do it: batches are pipelined on one connection; when it breaks, or an answer does not
come, everything in flight is sent again in its order on another one, while the first copies may yet arrive. What was
acknowledged is now and then asked for once more: a repetition of any of the last five batches has to be answered with
the original's offset.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import INIT_PRODUCER_ID, PRODUCE
from sim.client import Client, Unanswered
from sim.world import World

IN_FLIGHT_MAX: Final = 5
# What a client sends again after a while.
RETRIABLE: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})


@dataclass(slots=True)
class Batch:
    """A batch with its place in the producer's count, and where it went once it is known."""

    partition: int
    first_number: int
    values: list[str]
    encoded: bytes = b""
    offset: int | None = None


@dataclass(slots=True)
class Lane:
    """What a producer knows of one partition."""

    next_number: int = 0
    acknowledged: deque[Batch] = field(default_factory=lambda: deque(maxlen=IN_FLIGHT_MAX))


def produce_fields(topic: str, partition: int, encoded: bytes, transactional_id: str | None = None) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": encoded}]}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout": 1000, "topic_data": data}


class IdempotentProducer(Client):
    """Produces to all partitions of a topic until it is told to stop, or dies."""

    def __init__(self, world: World, name: str, topic: str, partitions: int) -> None:
        super().__init__(world, name)
        self._topic = topic
        self._lanes = [Lane() for _ in range(partitions)]
        self._version = self.random.choice((3, 5, 7, 8, 9, 10, 11, 12))
        self._producer_id = -1
        self._unacknowledged: deque[Batch] = deque()
        self.is_done = False

    async def live(self, batches: int) -> None:
        """Deliver so many batches."""
        await self._begin()
        left = batches
        while left or self._unacknowledged:
            wanted = min(self.random.randint(1, IN_FLIGHT_MAX) - len(self._unacknowledged), left)
            for _ in range(wanted):
                self._unacknowledged.append(self._new_batch())
                left -= 1
            await self._deliver()
            if self.random.random() < 0.1:
                await self._repeat()
            await self.pause(0.05)
        self.is_done = True
        self.note("done")

    async def _begin(self) -> None:
        while True:
            answer = await self.insist(
                INIT_PRODUCER_ID,
                4,
                transactional_id=None,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            if answer.error_code == 0:
                self._producer_id = answer.producer_id
                self.note("began", producer_id=self._producer_id)
                return
            await self.pause()

    def _new_batch(self) -> Batch:
        partition = self.random.randrange(len(self._lanes))
        lane = self._lanes[partition]
        first, count = lane.next_number, self.random.choice((1, 1, 2, 5))
        values = [f"{self.name}/{partition}/{number}" for number in range(first, first + count)]
        filling = self.random.choice((0, 0, 50, 400))
        records = [Record(f"{value} {'.' * filling}".encode(), timestamp_ms=1_800_000_000_000) for value in values]
        encoded = encode_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=first)
        lane.next_number += count
        self.note("send", partition=partition, values=values)
        return Batch(partition, first, values, bytes(encoded))

    async def _deliver(self) -> None:
        """Send all that was not acknowledged, in order; keep what has to be sent again."""
        sent = self._unacknowledged
        self._unacknowledged = deque()
        try:
            answers = [await self._post(batch) for batch in sent]
        except Unanswered:
            self._unacknowledged = sent
            await self.pause()
            return
        stuck: set[int] = set()
        for place, (batch, posted) in enumerate(zip(sent, answers, strict=True)):
            try:
                answer = await self.answer(posted)
            except Unanswered:
                self._unacknowledged.extend(list(sent)[place:])
                return
            (appended,) = answer.responses[0].partition_responses
            if appended.error_code == 0:
                self._acknowledged(batch, appended.base_offset)
                continue
            if appended.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.partition not in stuck:
                self.world.anomaly("gap for the next number", f"{self.name} partition {batch.partition} {batch.values}")
            if appended.error_code not in RETRIABLE:
                self.world.anomaly("refused", f"{self.name} {batch.values}: {appended.error_code!r}")
            stuck.add(batch.partition)
            self._unacknowledged.append(batch)

    async def _post(self, batch: Batch) -> Any:
        return await self.post(PRODUCE, self._version, **produce_fields(self._topic, batch.partition, batch.encoded))

    def _acknowledged(self, batch: Batch, offset: int) -> None:
        batch.offset = offset
        self._lanes[batch.partition].acknowledged.append(batch)
        self.note("acked", partition=batch.partition, offset=offset, values=batch.values)

    async def _repeat(self) -> None:
        """Send one of the last five again, as if its answer had been lost; nothing newer is in flight."""
        lane = self.random.choice(self._lanes)
        if not lane.acknowledged or any(b.partition == lane.acknowledged[0].partition for b in self._unacknowledged):
            return
        batch = self.random.choice(lane.acknowledged)
        try:
            answer = await self.answer(await self._post(batch))
        except Unanswered:
            return
        self.world.fired["repeated on purpose"] += 1
        (appended,) = answer.responses[0].partition_responses
        self.note("repeated", partition=batch.partition, offset=appended.base_offset, values=batch.values)
        if appended.error_code == 0 and appended.base_offset != batch.offset:
            self.world.anomaly("repetition elsewhere", f"{batch.values} at {appended.base_offset}, was {batch.offset}")
        elif appended.error_code not in (0, ErrorCode.KAFKA_STORAGE_ERROR):
            self.world.anomaly("repetition refused", f"{batch.values}: {appended.error_code!r}")
