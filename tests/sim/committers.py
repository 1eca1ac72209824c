"""A consumer that commits its offsets by itself, without a transaction: each further than the one before.

It must never ask while a commit of its own is on its way and may yet be answered, or nobody could say what it has to
be shown.
"""

import asyncio

from semel.wire.versions import OFFSET_COMMIT
from sim.client import Client, Unanswered
from sim.copiers import committed_offsets
from sim.world import World


class OffsetCommitter(Client):
    """Commits for a group that has no members, and asks what counts."""

    def __init__(self, world: World, name: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, name)
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._version = self.random.choice((2, 3, 5, 6, 7, 8, 9))
        self._next = 0

    async def live(self) -> None:
        # Whoever lost its connection asks where it stands before it goes on.
        is_certain = True
        while True:
            try:
                if is_certain and self.random.random() < 0.7:
                    await self._commit(self.random.randrange(self._partitions))
                else:
                    stable = self.random.random() < 0.5
                    await committed_offsets(self, self._group, self._topic, self._partitions, stable=stable)
                    is_certain = True
            except Unanswered:
                is_certain = False
                await self.pause()
            await asyncio.sleep(self.random.uniform(0.0, 0.4))

    async def _commit(self, partition: int) -> None:
        self._next += self.random.randint(1, 5)
        offset = self._next
        told = {"group": self._group, "topic": self._topic, "partition": partition, "offset": offset}
        self.note("commit sent", **told)
        committed = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": f"as far as {offset}",
        }
        answer = await self.ask(
            OFFSET_COMMIT,
            self._version,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": self._topic, "partitions": [committed]}],
        )
        error = int(answer.topics[0].partitions[0].error_code)
        self.note("commit answered", **told, error=error)
