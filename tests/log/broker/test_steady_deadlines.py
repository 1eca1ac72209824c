"""Deadlines are kept by a clock that nobody can set: putting the broker's clock right neither delays nor hastens."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.log.broker.broker import Broker
from semel.log.core.entries import PartitionName
from semel.wire.steps import finish
from semel.wire.versions import CREATE_TOPICS
from sim.client import Client
from sim.members import ClassicMember, ConsumerMember, Member
from sim.simulation import GROUP_S_MAX
from sim.world import World

HOUR_S = 3_600.0
TIMEOUT_S = 20.0
STEPS_S = pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
PROTOCOLS = pytest.mark.parametrize("protocol", [ClassicMember, ConsumerMember])


def in_world(scenario: Callable[[World, Broker], Coroutine[Any, Any, None]]) -> None:
    """Play a scenario with a broker in a time that is counted and not waited for, where nothing goes wrong."""
    world = World(1)

    async def play() -> None:
        await world.start_broker()
        world.is_healed = True
        assert world.broker is not None
        topic = {"name": "orders", "num_partitions": 2, "replication_factor": -1, "assignments": [], "configs": []}
        await Client(world, "admin").ask(CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000, validate_only=False)
        await scenario(world, world.broker)

    world.loop.run(play())
    assert world.anomalies == []


def of_a_group(world: World, broker: Broker, protocol: type[Member]) -> list[tuple[Member, "asyncio.Task[None]"]]:
    topic_id = broker.log.state.catalog.existing("orders").topic_id
    members = [protocol(world, name, "tills", "orders", topic_id, 2) for name in ("left", "right")]
    return [(member, world.spawn(member.live(), member.name)) for member in members]


@STEPS_S
@PROTOCOLS
def test_members_that_show_themselves_stay_when_the_clock_is_set(protocol: type[Member], step_s: float) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        members = of_a_group(world, broker, protocol)
        await asyncio.sleep(GROUP_S_MAX)
        before = [(member.generation, member.assigned) for member, _ in members]
        assert sorted(len(assigned) for _, assigned in before) == [1, 1]
        world.clock_ahead_s = step_s
        await asyncio.sleep(GROUP_S_MAX)
        assert [(member.generation, member.assigned) for member, _ in members] == before

    in_world(scenario)


@STEPS_S
@PROTOCOLS
def test_a_member_that_fell_silent_is_missed_when_the_clock_is_set(protocol: type[Member], step_s: float) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        (staying, _), (_, silent) = of_a_group(world, broker, protocol)
        await asyncio.sleep(GROUP_S_MAX)
        silent.cancel()
        world.clock_ahead_s = step_s
        await asyncio.sleep(2 * GROUP_S_MAX)
        assert staying.assigned == {0, 1}

    in_world(scenario)


@STEPS_S
def test_a_transaction_has_its_time_and_no_more_when_the_clock_is_set(step_s: float) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        claim = broker.transactions.claim("till", int(TIMEOUT_S * 1000), None)
        topic = broker.log.state.catalog.existing("orders")
        world.clock_ahead_s = step_s
        for _ in range(3):
            producer_id, epoch = claim.producer_id, broker.transactions.claim("till", 20_000, None).producer_epoch
            broker.transactions.add_partitions("till", producer_id, epoch, [PartitionName(topic.number, 0)])
            world.clock_ahead_s = -world.clock_ahead_s
            await asyncio.sleep(TIMEOUT_S - 0.1)
            assert broker.log.state.transactions.is_open(producer_id)
            await asyncio.sleep(0.2)
            assert not broker.log.state.transactions.is_open(producer_id)

    in_world(scenario)


def test_a_transaction_has_a_time_of_its_own_whenever_the_one_before_it_began() -> None:
    async def scenario(world: World, broker: Broker) -> None:
        claim = broker.transactions.claim("till", int(TIMEOUT_S * 1000), None)
        producer = "till", claim.producer_id, claim.producer_epoch
        partitions = [PartitionName(broker.log.state.catalog.existing("orders").number, 0)]
        broker.transactions.add_partitions(*producer, partitions)
        await asyncio.sleep(TIMEOUT_S / 2)
        finish(broker.transactions.end(*producer, True, raises_epoch=False, check_timely=lambda: None))
        broker.transactions.add_partitions(*producer, partitions)
        await asyncio.sleep(TIMEOUT_S - 0.1)
        assert broker.log.state.transactions.is_open(claim.producer_id)
        await asyncio.sleep(0.2)
        assert not broker.log.state.transactions.is_open(claim.producer_id)

    in_world(scenario)
