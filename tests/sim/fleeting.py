"""A topic that is deleted and made anew, over and over, and clients that go by its id: none may take one for another.

What is written, read and committed names the topic by its id, and every value says which topic it was written to. So a
record or an offset that survives the deletion of its topic shows.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from semel.testing.checkers import Event, Truth, events
from semel.wire.errors import ErrorCode
from semel.wire.versions import CREATE_TOPICS, DELETE_TOPICS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, PRODUCE
from sim.client import Client, Unanswered
from sim.consumers import READ_UNCOMMITTED, Reader
from sim.producers import Batch, IdempotentProducer, Refused
from sim.world import World

FLEETING: Final = "fleeting"
NO_ID: Final = bytes(16)


def label(topic_id: bytes) -> str:
    """What the topic of this id is called in the history."""
    return f"{FLEETING}@{topic_id.hex()[:8]}"


async def current_id(client: Client) -> bytes:
    """The id of the topic as it is now; waits for it where there is none."""
    while True:
        answer = await client.insist(
            METADATA,
            12,
            topics=[{"topic_id": NO_ID, "name": FLEETING}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        if answer.topics[0].error_code == 0:
            return bytes(answer.topics[0].topic_id)
        await client.pause()


class Remaker(Client):
    """Deletes the topic and makes it anew for as long as things go wrong, and leaves one behind."""

    def __init__(self, world: World, name: str, partitions: int, configs: dict[str, str]) -> None:
        super().__init__(world, name)
        self._wanted = {
            "name": FLEETING,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }

    async def live(self) -> None:
        await self._make()
        while not self.world.is_healed:
            await asyncio.sleep(self.random.uniform(1.0, 8.0))
            await self._delete(await current_id(self))
            await self.pause(0.3)
            await self._make()
            self.world.fired["topic made anew"] += 1

    async def _delete(self, topic_id: bytes) -> None:
        # By its id, so that a request that is late cannot delete the next one.
        while True:
            answer = await self.insist(DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}], timeout_ms=1000)
            if answer.responses[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_ID):
                return
            await self.pause()

    async def _make(self) -> None:
        while True:
            answer = await self.insist(CREATE_TOPICS, 7, topics=[self._wanted], timeout_ms=1000, validate_only=False)
            if answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await self.pause()


class FleetingProducer(IdempotentProducer):
    """Writes to the topic by its id; where that is gone, it begins anew with the one that there is."""

    _topic_id = NO_ID

    async def _begin(self) -> None:
        self._topic_id = await current_id(self)
        self.topic = label(self._topic_id)
        self._counts = [0] * self.partitions
        await super()._begin()

    async def live(self, batches: int) -> None:
        while True:
            try:
                await super().live(batches)
                return
            except Refused as refused:
                if refused.error != ErrorCode.UNKNOWN_TOPIC_ID:
                    raise
                self.note("the topic is gone", topic=self.topic)

    def value_of(self, partition: int, number: int) -> str:
        return f"{self.topic}/{self.name}/{partition}/{number}"

    async def post_batch(self, batch: Batch) -> Any:
        data = [{"topic_id": self._topic_id, "partition_data": [{"index": batch.partition, "records": batch.encoded}]}]
        return await self.post(PRODUCE, 13, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)


class FleetingReader(Reader):
    """Reads the topic by its id, and the next one from its beginning."""

    def __init__(self, world: World, name: str, partitions: int) -> None:
        super().__init__(world, name, FLEETING, partitions, READ_UNCOMMITTED)

    async def live(self) -> None:
        await self.turn_to_current()
        await super().live()

    async def turn_to_current(self) -> None:
        topic_id = await current_id(self)
        if topic_id != self.topic_id:
            self.turn_to(topic_id, label(topic_id))

    async def read(self, bytes_max: int = 1024 * 1024) -> Any:
        records = await super().read(bytes_max)
        if self.is_gone:
            await self.turn_to_current()
        return records


class FleetingCommitter(Client):
    """Commits offsets in the topic by its id, and asks what counts."""

    def __init__(self, world: World, name: str, group: str, partitions: int) -> None:
        super().__init__(world, name)
        self._group = group
        self._partitions = partitions
        self._topic_id = NO_ID
        self._next = 0

    async def live(self) -> None:
        while True:
            try:
                if self._topic_id == NO_ID:
                    self._topic_id = await current_id(self)
                elif self.random.random() < 0.5:
                    await self._commit(self.random.randrange(self._partitions))
                else:
                    await self.look()
            except Unanswered:
                await self.pause()
            await asyncio.sleep(self.random.uniform(0.0, 1.0))

    async def _commit(self, partition: int) -> None:
        self._next += 1
        told = {"group": self._group, "topic": label(self._topic_id), "partition": partition, "offset": self._next}
        self.note("commit sent", **told)
        committed = {"partition_index": partition, "committed_offset": self._next, "committed_metadata": ""}
        answer = await self.ask(
            OFFSET_COMMIT,
            10,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"topic_id": self._topic_id, "partitions": [committed]}],
        )
        error = int(answer.topics[0].partitions[0].error_code)
        self.note("commit answered", **told, error=error)
        if error == ErrorCode.UNKNOWN_TOPIC_ID:
            self._topic_id = NO_ID

    async def look(self) -> None:
        """Note what counts in the topic of the id that is known."""
        topics = [{"topic_id": self._topic_id, "partition_indexes": list(range(self._partitions))}]
        answer = await self.ask(
            OFFSET_FETCH, 10, groups=[{"group_id": self._group, "topics": topics}], require_stable=False
        )
        (found,) = answer.groups
        if found.error_code or any(p.error_code for p in found.topics[0].partitions):
            self._topic_id = NO_ID
            return
        offsets = {p.partition_index: int(p.committed_offset) for p in found.topics[0].partitions}
        in_order = [offsets[index] for index in range(self._partitions)]
        self.note("offsets seen", group=self._group, topic=label(self._topic_id), offsets=in_order)


def strays(history: list[Event], truth: Truth) -> Iterator[str]:
    """Records that are found in another topic than the one of the same name that they were written to."""
    found = [((read["topic"], read["partition"]), read["records"]) for _, read in events(history, "read")]
    found += [(place, [(seen.offset, seen.value) for seen in records]) for place, records in truth.all_records.items()]
    for (topic, partition), records in found:
        for offset, value in records:
            if value.startswith(f"{FLEETING}@") and value.partition("/")[0] != topic:
                yield f"stray record: {value} stands at {offset} of {topic}/{partition}"
