"""Consumers that read partitions from their beginning and remember all they saw, committed records alone or all.

A read_committed consumer drops aborted records by the list that comes with each answer, as real clients do. Each notes
what it saw and how far it came; the checkers compare that with what stands there in the end.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from read_committed import batches_in, shown
from semel.testing.checkers import READ_COMMITTED, Seen
from semel.wire.batch import read_header
from semel.wire.errors import ErrorCode
from semel.wire.versions import FETCH, LIST_OFFSETS
from sim.client import Client, Unanswered
from sim.compacted import text_of
from sim.world import World

READ_UNCOMMITTED: Final = 0
LATEST: Final = -1


class Passage(NamedTuple):
    """What one fetch showed of a partition, and where the next one begins."""

    records: list[Seen]
    next_offset: int


def passage(data: bytes, aborted: Sequence[tuple[int, int]], from_offset: int) -> Passage:
    """The records that an application would be given."""
    records: list[Seen] = []
    for record in (record for batch in shown(data, aborted) for record in batch.records):
        if record.offset >= from_offset:
            value, origin, _ = text_of(record).split(" ")
            records.append(Seen(record.offset, value, origin))
    return Passage(records, max([from_offset, *(read_header(stored).next_offset for stored in batches_in(data))]))


class Reader(Client):
    """Fetches from the partitions of one topic; `positions` is where it stands in each."""

    def __init__(self, world: World, name: str, topic: str, partitions: int, isolation: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.isolation = isolation
        self.positions = [0] * partitions
        # Where it goes by an id, `topic` is only what the topic is called in the history.
        self.topic_id: bytes | None = None
        self.is_gone = False
        self._version = self.random.choice((4, 5, 7, 11, 12))

    def turn_to(self, topic_id: bytes, topic: str) -> None:
        """Read the topic of this id, from its beginning."""
        self.topic_id, self.topic, self.is_gone = topic_id, topic, False
        self.positions = [0] * len(self.positions)
        self._version = self.random.choice((13, 16, 17))

    async def read(self, bytes_max: int = 1024 * 1024) -> list[list[Seen]]:
        """What comes next, in each partition."""
        asked = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": bytes_max, "log_start_offset": -1}
            for index, offset in enumerate(self.positions)
        ]
        answer = await self.ask(
            FETCH,
            self._version,
            replica_id=-1,
            max_wait_ms=self.random.choice((0, 100, 500)),
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=self.isolation,
            session_id=0,
            session_epoch=-1,
            topics=[{**self._naming(), "partitions": asked}],
            forgotten_topics_data=[],
            rack_id="",
        )
        seen: list[list[Seen]] = [[] for _ in self.positions]
        for topic in answer.responses:
            for partition in topic.partitions:
                seen[partition.partition_index] = self._take(partition)
        return seen

    def _naming(self) -> dict[str, Any]:
        return {"topic": self.topic} if self.topic_id is None else {"topic_id": self.topic_id}

    def _take(self, answer: Any) -> list[Seen]:
        index = answer.partition_index
        if answer.error_code:
            self.is_gone = answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            self.note("fetch refused", partition=index, error=int(answer.error_code))
            return []
        aborted = [(t.producer_id, t.first_offset) for t in answer.aborted_transactions or ()]
        records, next_offset = passage(answer.records or b"", aborted, self.positions[index])
        if self.isolation == READ_COMMITTED and next_offset > answer.last_stable_offset:
            self.world.anomaly(
                "read past the last stable offset",
                f"{self.name} {self.topic}-{index}: {next_offset} of {answer.last_stable_offset}",
            )
        if next_offset > self.positions[index]:
            self.note(
                "read",
                topic=self.topic,
                partition=index,
                isolation=self.isolation,
                from_offset=self.positions[index],
                next_offset=next_offset,
                records=[(record.offset, record.value) for record in records],
            )
            self.positions[index] = next_offset
        return records

    async def live(self) -> None:
        """Read on for as long as there is a world."""
        while True:
            try:
                await self.read(self.random.choice((200, 1000, 20_000)))
            except Unanswered:
                await self.pause()
            await self.pause(0.6)

    async def read_all(self) -> list[list[Seen]]:
        """All there is, by partition, when nothing goes wrong any more."""
        everything: list[list[Seen]] = [[] for _ in self.positions]
        ends = await self.ends()
        while any(position < end for position, end in zip(self.positions, ends, strict=True)):
            before = list(self.positions)
            for records, more in zip(everything, await self.read(), strict=True):
                records += more
            if self.positions == before:
                self.world.anomaly("no progress", f"{self.name} stands at {before} of {ends}")
                break
        return everything

    async def ends(self) -> list[int]:
        """The latest offset of each partition, for this isolation level."""
        asked = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": LATEST}
            for index in range(len(self.positions))
        ]
        topics = [{"name": self.topic.partition("@")[0], "partitions": asked}]
        answer = await self.insist(LIST_OFFSETS, 7, replica_id=-1, isolation_level=self.isolation, topics=topics)
        offsets = {partition.partition_index: partition.offset for partition in answer.topics[0].partitions}
        return [offsets[index] for index in range(len(self.positions))]
