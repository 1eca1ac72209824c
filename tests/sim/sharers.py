"""Members of a share group that acquire records, say something about them or nothing, and die; and what became of each
record, judged while it happens.

A record is never delivered after somebody has been told that it is done. Its count of deliveries only rises, and never
over the limit. No member acknowledges what it no longer holds. When nothing goes wrong any more, all records are done,
and each of them was accepted, rejected, or delivered as often as the group allows.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    INCREMENTAL_ALTER_CONFIGS,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
)
from sim.client import Client, Unanswered
from sim.world import LIMITS, World

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
JOIN_EPOCH: Final = 0
GROUP_RESOURCE: Final = 32
PATIENCE_S: Final = 120.0
# With these a member begins its session anew.
SESSION_LOST: Final = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)

Place = tuple[int, int]


class Delivery:
    """What one member was told about a record that it was given."""

    def __init__(self, count: int, asked_s: float, told_s: float) -> None:
        self.count = count
        self.asked_s = asked_s
        self.told_s = told_s


class Fate:
    """What is known of a record."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        # When somebody was told that it is done, and who has said that it is, whether or not the broker heard it.
        self.done_s: float | None = None
        self.said_to_be_done_by: set[str] = set()


class Fates:
    """All records of the topic, by partition and offset."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fates: dict[Place, Fate] = {}
        # When each fetch was given up whose answer nobody got: it may have delivered anything.
        self.given_up_s: list[float] = []

    def of(self, place: Place) -> Fate:
        return self._fates.setdefault(place, Fate())

    def delivered(self, who: str, place: Place, delivery: Delivery) -> None:
        fate = self.of(place)
        if fate.done_s is not None and fate.done_s < delivery.asked_s:
            self._world.anomaly("came again", f"{who} got {place}, which was done at {fate.done_s}")
        if delivery.count > LIMITS.share_deliveries_max:
            self._world.anomaly("over the limit", f"{who} got {place} for the {delivery.count}th time")
        for before in fate.deliveries:
            if before.told_s < delivery.asked_s and delivery.count <= before.count:
                self._world.anomaly("count went back", f"{place}: {delivery.count} after {before.count}")
        fate.deliveries.append(delivery)

    def acknowledged(self, who: str, place: Place, word: int, mine: Delivery, said_s: float) -> None:
        """The broker has answered that this counts."""
        fate = self.of(place)
        others = [other.count for other in fate.deliveries if other.count > mine.count and other.told_s < said_s]
        # What is done is acknowledged again by anybody, without an effect.
        may_be_done = fate.said_to_be_done_by - {who} or LIMITS.share_deliveries_max in others
        if others and not may_be_done:
            self._world.anomaly("not its own", f"{who} acknowledged {place}, which others had for {others}")
        if word != RELEASE:
            fate.done_s = self._world.loop.time()

    def judge(self, places: set[Place]) -> None:
        """No record is lost."""
        for place in sorted(self._fates.keys() - places):
            self._world.anomaly("no such record", f"{place} was delivered")
        for place in sorted(places):
            fate = self.of(place)
            last = max(fate.deliveries, key=lambda one: one.count, default=Delivery(0, 0.0, 0.0))
            unseen = sum(given_up_s > last.asked_s for given_up_s in self.given_up_s)
            count = last.count
            if not fate.said_to_be_done_by and count + unseen < LIMITS.share_deliveries_max:
                self._world.anomaly("lost", f"{place} was delivered {count} times, and nobody said that it is done")


class Sharer(Client):
    """One member. With `is_last` it accepts all that it gets, and is never silent."""

    def __init__(self, world: World, name: str, fates: Fates, group: str, topic: str, topic_id: bytes, partitions: int):
        super().__init__(world, name)
        self._fates = fates
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._partitions = partitions
        self._lives = 0
        self.is_last = False
        self._begin_life()

    def _begin_life(self) -> None:
        self._lives += 1
        self._member_id = f"life {self._lives} of {self.name}"
        self._member_epoch = JOIN_EPOCH
        self._lose_session()

    def _lose_session(self) -> None:
        self._epoch = 0
        self._held: dict[Place, Delivery] = {}

    async def live(self) -> None:
        while True:
            try:
                await self._beat()
                await self._fetch()
            except Unanswered:
                self._lose_session()
                await self.pause()
            mood = 1.0 if self.is_last else self.random.random()
            if mood < 0.05:
                self.world.fired["sharer that dies"] += 1
                self.hang_up()
                self._begin_life()
            elif mood < 0.1:
                self.world.fired["sharer that holds for too long"] += 1
                await asyncio.sleep(self.random.uniform(1.0, 5.0))
            await self.pause(0.2)

    async def _beat(self) -> None:
        answer = await self.ask(
            SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
            rack_id=None,
            subscribed_topic_names=[self._topic] if self._member_epoch == JOIN_EPOCH else None,
        )
        self._member_epoch = JOIN_EPOCH if answer.error_code else answer.member_epoch

    async def _fetch(self) -> None:
        words = self._words() if self._epoch else {}
        session = {
            "group_id": self._group,
            "member_id": self._member_id,
            "share_session_epoch": self._epoch,
            "is_renew_ack": False,
        }
        said_s = self.world.loop.time()
        for place, word in words.items():
            if word != RELEASE:
                self._fates.of(place).said_to_be_done_by.add(self._member_id)
        if self._epoch and self.random.random() < 0.4:
            self._epoch += 1
            answer = await self.ask(SHARE_ACKNOWLEDGE, 2, topics=self._topics(words, {}), **session)
            self._take(answer, words, said_s)
            return
        self._epoch += 1
        try:
            answer = await self.ask(
                SHARE_FETCH,
                2,
                max_wait_ms=self.random.choice((0, 100, 500)),
                min_bytes=1,
                max_bytes=100_000,
                max_records=self.random.choice((1, 5, 50)),
                batch_size=self.random.choice((1, 10)),
                share_acquire_mode=self.random.choice((0, 1)),
                topics=self._topics(words, {"partition_max_bytes": 0}),
                forgotten_topics_data=[],
                **session,
            )
        except Unanswered:
            self._fates.given_up_s.append(self.world.loop.time())
            raise
        self._take(answer, words, said_s)

    def _words(self) -> dict[Place, int]:
        """What it says about some of the records that it holds."""
        if self.is_last:
            return dict.fromkeys(self._held, ACCEPT)
        words = (None, *[RELEASE] * 4, REJECT, *[ACCEPT] * 4)
        return {place: word for place in self._held if (word := self.random.choice(words)) is not None}

    def _topics(self, words: dict[Place, int], more: dict[str, int]) -> list[dict[str, Any]]:
        partitions = []
        for index in range(self._partitions):
            acks = [
                {"first_offset": offset, "last_offset": offset, "acknowledge_types": [word]}
                for (of_partition, offset), word in sorted(words.items())
                if of_partition == index
            ]
            partitions.append({"partition_index": index, "acknowledgement_batches": acks, **more})
        return [{"topic_id": self._topic_id, "partitions": partitions}]

    def _take(self, answer: Any, words: dict[Place, int], said_s: float) -> None:
        if answer.error_code:
            self.note("share refused", error=int(answer.error_code))
            self._lose_session()
            return
        of_partitions = {one.partition_index: one for topic in answer.responses for one in topic.partitions}
        for place, word in words.items():
            mine, partition = self._held.pop(place), of_partitions.get(place[0])
            error = getattr(partition, "acknowledge_error_code", getattr(partition, "error_code", None))
            if error == 0:
                self._fates.acknowledged(self._member_id, place, word, mine, said_s)
            else:
                self.note("acknowledgement refused", place=place, error=error)
        now_s = self.world.loop.time()
        for index, partition in sorted(of_partitions.items()):
            for batch in getattr(partition, "acquired_records", ()):
                self.note("acquired", partition=index, batch=(batch.first_offset, batch.last_offset))
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    delivery = Delivery(batch.delivery_count, said_s, now_s)
                    self._held[index, offset] = delivery
                    self._fates.delivered(self.name, (index, offset), delivery)

    async def configure(self, **configs: str) -> None:
        """Set configurations of the group."""
        changes = [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self._group, "configs": changes}
        await self.insist(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)

    async def wait_until_done(self) -> None:
        """Nothing that is available is held for ever."""
        topics = [{"topic_name": self._topic, "partitions": list(range(self._partitions))}]
        until_s = self.world.loop.time() + PATIENCE_S
        while True:
            groups = [{"group_id": self._group, "topics": topics}]
            answer = await self.insist(DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=groups)
            found = answer.groups[0].topics[0].partitions if answer.groups[0].topics else ()
            lags = [one.lag for one in found if one.start_offset >= 0]
            if len(lags) == self._partitions and not any(lags):
                return
            if self.world.loop.time() > until_s:
                self.world.anomaly("no progress", f"records of {lags} are not done")
                return
            await self.pause()
