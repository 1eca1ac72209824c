"""One history from its seed: who takes part, what goes wrong, the healing, and the verdict."""

import asyncio
import hashlib
from collections import Counter
from typing import Final, NamedTuple

from semel.wire.versions import CREATE_TOPICS
from sim import checkers
from sim.checkers import Truth
from sim.client import Client
from sim.consumers import READ_COMMITTED, READ_UNCOMMITTED, Reader
from sim.nemesis import Nemesis
from sim.producers import IdempotentProducer
from sim.world import World

PLAIN: Final = "plain"
PARTITIONS: Final = 2
RAGE_S: Final = 20.0
# By then everybody must have got on, were it only that nothing is wrong any more.
PATIENCE_S: Final = 300.0
SEGMENT_BYTES: Final = "4096"


class Outcome(NamedTuple):
    """What came of one history."""

    seed: int
    history: list[str]
    anomalies: list[str]
    fired: Counter[str]
    operations: Counter[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()


def simulate(seed: int) -> Outcome:
    """The history of this seed."""
    world = World(seed, "os" if seed % 10 == 9 else "fsync")
    with world.seeded_secrets():
        world.loop.run(_Cast(world).play())
    world.fired.update(world.files.fired)
    return Outcome(seed, [str(event) for event in world.history], world.anomalies, world.fired, world.operations)


class _Cast:
    """Everybody who takes part in a history."""

    def __init__(self, world: World) -> None:
        self._world = world
        random = world.chance("cast")
        self._producers = [IdempotentProducer(world, f"p{n}", PLAIN, PARTITIONS) for n in range(random.randint(1, 3))]
        self._readers = [Reader(world, f"r{n}", PLAIN, PARTITIONS, isolation) for n, isolation in enumerate((0, 1))]
        self._random = random

    async def play(self) -> None:
        world = self._world
        await world.start_broker()
        await self._create_topics()
        lives = [
            world.spawn(producer.live(self._random.randint(10, 40)), producer.name) for producer in self._producers
        ]
        for reader in self._readers:
            world.spawn(reader.live(), reader.name)
        clients = [client.name for client in (*self._producers, *self._readers)]
        await Nemesis(world, clients).rage(RAGE_S)
        await world.heal()
        await self._finish(lives)
        self._judge(await self._truth())

    async def _create_topics(self) -> None:
        admin = Client(self._world, "admin")
        configs = [{"name": "segment.bytes", "value": SEGMENT_BYTES}]
        topics = [
            {
                "name": name,
                "num_partitions": PARTITIONS,
                "replication_factor": -1,
                "assignments": [],
                "configs": configs,
            }
            for name in (PLAIN,)
        ]
        await admin.ask(CREATE_TOPICS, 7, topics=topics, timeout=1000, validate_only=False)

    async def _finish(self, lives: list["asyncio.Task[None]"]) -> None:
        _, late = await asyncio.wait(lives, timeout=PATIENCE_S)
        for task in sorted(late, key=lambda task: task.get_name()):
            self._world.anomaly("no progress", f"{task.get_name()} has not come to its end")

    async def _truth(self) -> Truth:
        truth = Truth()
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            reader = Reader(self._world, f"last {isolation}", PLAIN, PARTITIONS, isolation)
            seen = await reader.read_all()
            for partition, records in enumerate(seen):
                truth.of(isolation)[PLAIN, partition] = records
            for partition, end in enumerate(reader.positions):
                truth.ends[PLAIN, partition] = (end, truth.ends.get((PLAIN, partition), (end, end))[0])
        return truth

    def _judge(self, truth: Truth) -> None:
        history = self._world.history
        for found in (
            checkers.lost_writes(history, truth, PLAIN),
            checkers.duplicates(truth),
            checkers.disorder(truth, PLAIN),
            checkers.unfaithful_reads(history, truth),
            checkers.stuck(truth),
        ):
            for text in found:
                self._world.anomaly(*text.split(": ", 1))
