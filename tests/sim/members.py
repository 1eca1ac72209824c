"""Members of consumer groups, of the classic protocol and of the new one (KIP-848), that come, fall silent and return.

A member notes what it is given and in which generation or epoch. In one generation no partition may have two owners;
what a member believes that was silent for too long counts for nothing, because whatever it commits is refused.
"""

import asyncio
import contextlib
import struct
from typing import Any, Final

from semel.log.core.groups.consumer_protocol import read_assignment, write_assignment
from semel.wire.errors import ErrorCode
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from sim.client import Client, Unanswered
from sim.world import World

# The least that brokers accept.
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 10_000
# What a member says instead of its epoch.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
STATIC_SHARE: Final = 0.3
# The group knows this member no more, or not as who it says to be, or has gone over to the other protocol.
EXPELLED: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class Member(Client):
    """What both protocols have in common. `assigned` is what this member believes to own, in `generation`."""

    def __init__(self, world: World, name: str, group: str, topic: str, topic_id: bytes, partitions: int) -> None:
        super().__init__(world, name)
        self.group = group
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions
        self.member_id = ""
        # A static member keeps its place when its process goes and another one comes.
        self.instance_id = f"seat of {name}" if self.random.random() < STATIC_SHARE else None
        self.generation = -1
        self.assigned: frozenset[int] = frozenset()
        # What it reads of other topics, by their ids.
        self.assigned_besides: frozenset[tuple[bytes, int]] = frozenset()
        # Rises with everything that is given or taken.
        self.changes = 0
        self.may_stop = False

    def take(self, assigned: frozenset[int]) -> None:
        self.changes += 1
        self.assigned = assigned
        self.note(
            "assigned",
            group=self.group,
            generation=self.generation,
            member=self.instance_id or self.member_id,
            partitions=sorted(assigned),
        )

    def lose_all(self, error: int) -> None:
        """The group knows this member no more."""
        self.note("expelled", error=error)
        self.changes += 1
        self.assigned = frozenset()
        self.assigned_besides = frozenset()
        self.generation = -1

    async def live(self) -> None:
        """Be a member, but for being silent now and then."""
        while True:
            try:
                await self.keep_up()
            except Unanswered:
                await self.pause()
            if self.world.is_healed:
                continue
            mood = self.random.random()
            if mood < 0.03:
                self.world.fired["silent member"] += 1
                await asyncio.sleep(self.random.uniform(3.0, 15.0))
            elif mood < 0.1 and self.assigned:
                self.world.fired["member that leaves"] += 1
                with contextlib.suppress(Unanswered):
                    await self.leave()
                await self.pause(1.0)
            elif mood < 0.15 and self.instance_id is not None:
                self.world.fired["static member that returns"] += 1
                with contextlib.suppress(Unanswered):
                    await self.begin_anew()
                await self.pause(1.0)

    async def keep_up(self) -> None:
        """One step of what a member does all the time."""
        raise NotImplementedError

    async def wait_a_beat(self) -> None:
        """The time between two signs of life: well within a session."""
        await asyncio.sleep(self.random.uniform(0.3, 1.7))

    async def leave(self) -> None:
        """Give everything back, and be nobody."""
        raise NotImplementedError

    async def begin_anew(self) -> None:
        """Be another process that takes the place of this one, if its place was kept."""
        raise NotImplementedError

    def as_committing(self) -> dict[str, Any]:
        """How a commit says who this is."""
        return {"generation_id": self.generation, "member_id": self.member_id, "group_instance_id": self.instance_id}


class ClassicMember(Member):
    """Joins, has its leader assign, and sends heartbeats until it is told that the group changes."""

    def __init__(self, world: World, name: str, group: str, topic: str, topic_id: bytes, partitions: int) -> None:
        super().__init__(world, name, group, topic, topic_id, partitions)
        # Older versions do not say whose place it is.
        is_static = self.instance_id is not None
        self._join_version = self.random.choice((5, 6, 8, 9) if is_static else (1, 2, 3, 4, 5, 6, 9))
        self._sync_version = self.random.choice((3, 5) if is_static else (0, 2, 3, 5))
        encoded = topic.encode()
        self._subscription = struct.pack(f">hih{len(encoded)}si", 0, 1, len(encoded), encoded, -1)

    async def keep_up(self) -> None:
        if self.generation < 0:
            await self._join()
            return
        await self.wait_a_beat()
        answer = await self.ask(
            HEARTBEAT,
            3,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.generation = -1
        elif answer.error_code in EXPELLED:
            self._expelled(int(answer.error_code))

    async def leave(self) -> None:
        member_id, self.member_id = self.member_id, ""
        self.lose_all(0)
        leaver = {"member_id": member_id, "group_instance_id": self.instance_id}
        await self.ask(LEAVE_GROUP, 3, group_id=self.group, members=[leaver])

    async def begin_anew(self) -> None:
        self.member_id = ""
        self.lose_all(0)
        self.hang_up()

    async def _join(self) -> None:
        posted = await self.post(
            JOIN_GROUP,
            self._join_version,
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": self._subscription}],
        )
        answer = await self.answer(posted, REBALANCE_MS / 1000 + 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code in EXPELLED:
            self._expelled(int(answer.error_code))
        elif answer.error_code:
            self.note("join refused", error=int(answer.error_code))
            await self.pause()
        else:
            self.member_id = answer.member_id
            is_leader = answer.leader == answer.member_id and not getattr(answer, "skip_assignment", False)
            await self._sync(answer.generation_id, [one.member_id for one in answer.members] if is_leader else [])

    async def _sync(self, generation: int, members: list[str]) -> None:
        shares = [
            {"member_id": member, "assignment": self._share(range(place, self.partitions, len(members)))}
            for place, member in enumerate(members)
        ]
        posted = await self.post(
            SYNC_GROUP,
            self._sync_version,
            group_id=self.group,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        answer = await self.answer(posted, REBALANCE_MS / 1000 + 5)
        if answer.error_code == 0:
            self.generation = generation
            assigned = read_assignment(answer.assignment)
            assert assigned is not None
            self.take(frozenset(assigned.get(self.topic, ())))
        elif answer.error_code in EXPELLED:
            self._expelled(int(answer.error_code))

    def _share(self, partitions: range) -> bytes:
        return write_assignment([(self.topic, partitions)])

    def _expelled(self, error: int) -> None:
        if error != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.lose_all(error)


class ConsumerMember(Member):
    """Says with each heartbeat where it is, and goes where it is told: first it gives, then it takes."""

    def __init__(self, world: World, name: str, group: str, topic: str, topic_id: bytes, partitions: int) -> None:
        super().__init__(world, name, group, topic, topic_id, partitions)
        self.generation = JOIN_EPOCH
        # Topics that it asks for besides.
        self.topics_besides: list[str] = []
        self._lives = 0
        self.member_id = f"member of {name}"
        self._says_all = True

    async def keep_up(self) -> None:
        joins = self.generation == JOIN_EPOCH
        says_all, self._says_all = self._says_all or joins, True
        owned = [{"topic_id": self.topic_id, "partitions": sorted(self.assigned)}] if self.assigned else []
        owned += [{"topic_id": topic_id, "partitions": [index]} for topic_id, index in sorted(self.assigned_besides)]
        answer = await self.ask(
            CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            subscribed_topic_names=[self.topic, *self.topics_besides] if says_all else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=owned if says_all else None,
        )
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, *EXPELLED):
            self.lose_all(int(answer.error_code))
            self.generation = JOIN_EPOCH
            return
        if answer.error_code:
            self.note("heartbeat refused", error=int(answer.error_code))
            await self.pause()
            return
        self.generation = answer.member_epoch
        self._says_all = False
        if answer.assignment is not None:
            given = {(one.topic_id, p) for one in answer.assignment.topic_partitions for p in one.partitions}
            besides = frozenset(place for place in given if place[0] != self.topic_id)
            if besides != self.assigned_besides:
                self._take_besides(besides)
            self._go(frozenset(index for topic_id, index in given if topic_id == self.topic_id))
        await self.wait_a_beat()

    async def leave(self) -> None:
        self.lose_all(0)
        self.generation = JOIN_EPOCH
        await self._go_away(LEAVE_EPOCH)

    async def begin_anew(self) -> None:
        """With a word, or without one; then the place is free when the session is over."""
        before = self.member_id
        self._lives += 1
        self.lose_all(0)
        self.generation = JOIN_EPOCH
        self.member_id = f"member {self._lives} of {self.name}"
        if self.random.random() < 0.7:
            await self._go_away(LEAVE_FOR_A_WHILE_EPOCH, before)

    async def _go_away(self, epoch: int, member_id: str | None = None) -> None:
        await self.ask(
            CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=member_id or self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None,
        )

    def _take_besides(self, besides: frozenset[tuple[bytes, int]]) -> None:
        self.assigned_besides = besides
        for topic_id, index in sorted(besides):
            self.note(
                "assigned",
                group=f"{self.group} of {topic_id.hex()}",
                generation=self.generation,
                member=self.instance_id or self.member_id,
                partitions=[index],
            )

    def _go(self, target: frozenset[int]) -> None:
        if target != self.assigned:
            self.take(target)
        # What it owns now, it says with the next one.
        self._says_all = True
