"""Histories of a share group in a world where everything goes wrong, with one broker and with two on a store."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from semel.testing.virtual_loop import Deadlock, NoEnd
from semel.wire.versions import CREATE_TOPICS
from sim.client import Client
from sim.consumers import READ_UNCOMMITTED, Reader
from sim.nemesis import Nemesis
from sim.pair import PairWorld
from sim.pair_nemesis import PairNemesis
from sim.producers import IdempotentProducer
from sim.sharers import Fates, Sharer
from sim.world import World

TOPIC = "jobs"
GROUP = "workers"
PARTITIONS = 2
RAGE_S = 20.0
# When nothing goes wrong any more, and members still release and hold for too long.
CALM_S = 20.0


async def play(world: World, nemesis: type[Nemesis]) -> None:
    await world.start_broker()
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": -1, "assignments": [], "configs": []}
    admin = Client(world, "admin")
    answer = await admin.ask(CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000, validate_only=False)
    fates = Fates(world)
    sharers = [
        Sharer(world, f"s{number}", fates, GROUP, TOPIC, answer.topics[0].topic_id, PARTITIONS) for number in range(4)
    ]
    await sharers[0].configure(**{"share.auto.offset.reset": "earliest"})
    producer = IdempotentProducer(world, "p", TOPIC, PARTITIONS)
    writing = world.spawn(producer.live(30), producer.name)
    lives = [world.spawn(sharer.live(), sharer.name) for sharer in sharers]
    await nemesis(world, [producer.name, *(sharer.name for sharer in sharers)]).rage(RAGE_S)
    await world.heal()
    await writing
    later = IdempotentProducer(world, "later", TOPIC, PARTITIONS)
    await later.live(20)
    await asyncio.sleep(CALM_S)
    for sharer in sharers:
        sharer.is_last = True
    await sharers[0].wait_until_done()
    for life in lives:
        life.cancel()
    reader = Reader(world, "last", TOPIC, PARTITIONS, READ_UNCOMMITTED)
    found = await reader.read_all()
    fates.judge({(index, seen.offset) for index, records in enumerate(found) for seen in records})


def history(world: World, nemesis: type[Nemesis]) -> Counter[str]:
    with world.seeded_secrets():
        try:
            world.loop.run(play(world, nemesis))
        except (TimeoutError, Deadlock, NoEnd) as error:
            world.anomaly("no progress", repr(error))
    world.count_faults()
    assert world.anomalies == [], f"seed {world.seed}"
    return world.fired


@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_lost_or_comes_again_when_it_is_done(seed: int) -> None:
    history(World(seed), Nemesis)


@pytest.mark.parametrize("seed", range(2))
def test_no_takeover_loses_a_record_or_brings_one_back(seed: int) -> None:
    history(PairWorld(seed), PairNemesis)
