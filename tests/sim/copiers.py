"""Consume, transform, produce: workers that copy committed records and move their group's offsets in one transaction.

Whatever happens to a worker, the copies that count are each committed input record once, in order, as far as the group
has come. Workers of one transactional id succeed one another; one that was paused and comes back is a zombie.
"""

import asyncio
import contextlib
from typing import Any, Final

from semel.testing.checkers import READ_COMMITTED, Seen
from semel.wire.errors import ErrorCode
from semel.wire.versions import ADD_OFFSETS_TO_TXN, OFFSET_FETCH, TXN_OFFSET_COMMIT
from sim.client import Client, Unanswered
from sim.consumers import Reader
from sim.members import Member
from sim.producers import Refused
from sim.transactors import NOT_NOW, Transactor
from sim.world import World

# With no member id, whoever has the producer speaks for the group.
NO_GENERATION: Final = -1
# So often in a row a worker that may stop has to find nothing more.
IDLE_ROUNDS: Final = 3


async def committed_offsets(client: Client, group: str, topic: str, partitions: int, *, stable: bool) -> list[int]:
    """How far the group has come in each partition, -1 where it has not begun; `Unanswered` if nobody says."""
    while True:
        asked_us = client.world.now_us()
        asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": list(range(partitions))}]}
        answer = await client.ask(OFFSET_FETCH, 8, groups=[asked], require_stable=stable)
        (found,) = answer.groups
        errors = {found.error_code, *(p.error_code for t in found.topics for p in t.partitions)}
        if errors == {0}:
            break
        if errors - {0, ErrorCode.UNSTABLE_OFFSET_COMMIT, *NOT_NOW}:
            raise Refused(int(max(errors)))
        await client.pause()
    offsets = {p.partition_index: p.committed_offset for t in found.topics for p in t.partitions}
    in_order = [int(offsets[index]) for index in range(partitions)]
    client.note("offsets seen", group=group, topic=topic, offsets=in_order, asked_us=asked_us)
    return in_order


class OffsetWatcher(Client):
    """Asks again and again how far a group has come, and notes it."""

    def __init__(self, world: World, name: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, name)
        self._asked = group, topic, partitions

    async def live(self) -> None:
        while True:
            with contextlib.suppress(Unanswered):
                await committed_offsets(self, *self._asked, stable=self.random.random() < 0.5)
            await self.pause(0.7)


class Copier(Transactor):
    """Copies one topic to another, partition by partition."""

    def __init__(
        self, world: World, name: str, transactional_id: str, group: str, source: str, target: str, partitions: int
    ) -> None:
        super().__init__(world, name, transactional_id, target, partitions)
        self.group = group
        self._source = source
        self._reader = Reader(world, name, source, partitions, READ_COMMITTED)
        self._offsets_version = 5 if self.speaks_version_2 else self.random.choice((0, 2, 3, 4))
        self._add_offsets_version = self.random.choice((0, 2, 3))
        self.may_stop = False

    async def live(self) -> None:
        """Copy until there is nothing more to come."""
        while True:
            try:
                await self.claim()
                await self._go_back()
                await self._copy_on()
                return
            except Refused as refused:
                self.note("fenced", error=refused.error)
                await self.pause(0.5)

    async def _copy_on(self) -> None:
        idle_rounds = 0
        while not (self.may_stop and idle_rounds >= IDLE_ROUNDS):
            try:
                records = await self._next_records()
            except Unanswered:
                await self.pause()
                continue
            if any(records):
                idle_rounds = 0
                await self._transact(records)
            else:
                idle_rounds += 1
                await self.pause(0.3)

    async def _next_records(self) -> list[list[Seen]]:
        return await self._reader.read(self.random.choice((500, 2_000, 20_000)))

    async def _go_back(self) -> None:
        """Begin where the group stands."""
        while True:
            try:
                offsets = await committed_offsets(self, self.group, self._source, self.partitions, stable=True)
            except Unanswered:
                await self.pause()
                continue
            self._reader.positions = [max(offset, 0) for offset in offsets]
            return

    async def _transact(self, records: list[list[Seen]]) -> None:
        transaction = self.begin()
        values: list[str] = []
        for partition, some in enumerate(records):
            if some:
                copies = [f"{transaction}/{len(values) + number}" for number in range(len(some))]
                values += copies
                self.add(partition, copies, [seen.value for seen in some])
        self.note("part of", transaction=transaction, values=values)
        offsets = {index: self._reader.positions[index] for index, some in enumerate(records) if some}
        self.note("offsets of", transaction=transaction, group=self.group, topic=self._source, offsets=offsets)
        offsets_first = self.random.random() < 0.2
        if offsets_first:
            await self._send_offsets(offsets)
        await self.deliver_all()
        if not offsets_first:
            await self._send_offsets(offsets)
        if self.random.random() < 0.25:
            self.world.fired["paused client"] += 1
            await asyncio.sleep(self.random.uniform(0.5, 6.0))
        if self.random.random() < 0.15:
            await self.give_up(transaction)
            await self._go_back()
        else:
            await self.end(transaction, commit=True)

    async def _send_offsets(self, offsets: dict[int, int]) -> None:
        if not self.speaks_version_2:
            await self.ask_until_done(
                lambda answer: answer.error_code,
                ADD_OFFSETS_TO_TXN,
                self._add_offsets_version,
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=self.group,
            )
        partitions = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for index, offset in offsets.items()
        ]
        await self.ask_until_done(
            lambda answer: max(partition.error_code for partition in answer.topics[0].partitions),
            TXN_OFFSET_COMMIT,
            self._offsets_version,
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[{"name": self._source, "partitions": partitions}],
            **self.membership(),
        )

    def membership(self) -> dict[str, Any]:
        """Who speaks for the group."""
        return {"generation_id": NO_GENERATION, "member_id": "", "group_instance_id": None}


class GroupCopier(Copier):
    """A copier that is a member of the group: it copies what it is given, and commits as who it was when it began."""

    def __init__(self, world: World, member: Member, name: str, source: str, target: str, partitions: int) -> None:
        super().__init__(world, name, name, member.group, source, target, partitions)
        # Older versions do not say who commits.
        self._offsets_version = 5 if self.speaks_version_2 else self.random.choice((3, 4))
        self._member = member
        self._changes = -1
        self._committing_as: dict[str, Any] = {}

    async def _go_back(self) -> None:
        self._changes = self._member.changes
        self._committing_as = self._member.as_committing()
        await super()._go_back()

    async def _next_records(self) -> list[list[Seen]]:
        if self._changes != self._member.changes:
            await self._go_back()
        before = list(self._reader.positions)
        records = await super()._next_records()
        for partition in range(self.partitions):
            if partition not in self._member.assigned:
                records[partition] = []
                self._reader.positions[partition] = before[partition]
        return [] if self._changes != self._member.changes else records

    def membership(self) -> dict[str, Any]:
        return self._committing_as
