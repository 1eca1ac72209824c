"""A member whose connection is lost has less time to show itself: one that was killed is missed soon, no other is."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from semel.log.broker.broker import Broker
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.consumer import ConsumerGroup
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_TOPICS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
)
from sim.client import Client
from sim.world import World

GROUP = "tills"
# Of members of the classic protocol; the others have what the broker is set to.
SESSION_MS = 6_000
# What is left of a session whose connection was lost.
SHARE = 0.4
# Longer than a request takes on the simulated network.
MOMENT_S = 0.1


class Process(Client):
    """A client with one connection, which ends when the process is killed."""

    async def answer_to(self, api_key: int, version: int, **values: Any) -> Any:
        """The answer to a request that may have to wait for others."""
        return await self.answer(await self.post(api_key, version, **values), patience_s=60)

    def die(self) -> None:
        assert self._wire is not None
        self._wire.transport.abort()


class ClassicMember:
    """One that has joined and got its assignment."""

    def __init__(self, _: str, instance_id: str | None = None) -> None:
        # The broker makes the id of a member that has none.
        self.member_id = ""
        self.instance_id = instance_id
        self.generation = -1

    async def join(self, process: Process) -> None:
        answer = await self.ask_to_join(process)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self.ask_to_join(process)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        answer = await process.ask(
            SYNC_GROUP,
            5,
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        assert answer.error_code == 0

    def ask_to_join(self, process: Process) -> Awaitable[Any]:
        return process.answer_to(
            JOIN_GROUP,
            9,
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
            reason=None,
        )

    async def show_itself(self, process: Process) -> None:
        answer = await process.ask(
            HEARTBEAT,
            4,
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        assert answer.error_code == 0

    async def leave(self, process: Process) -> None:
        await process.ask(LEAVE_GROUP, 1, group_id=GROUP, member_id=self.member_id)


class ConsumerMember:
    """One of the new protocol."""

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0

    async def join(self, process: Process) -> None:
        await self.beat(process, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], topic_partitions=[])

    async def show_itself(self, process: Process) -> None:
        await self.beat(process, self.epoch)

    async def leave(self, process: Process) -> None:
        await self.beat(process, -1)

    async def beat(self, process: Process, epoch: int, **said: Any) -> None:
        nothing: dict[str, Any] = {
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": None,
            "rack_id": None,
            "server_assignor": None,
        }
        who = {"group_id": GROUP, "member_id": self.member_id, "instance_id": self.instance_id}
        answer = await process.ask(CONSUMER_GROUP_HEARTBEAT, 1, **{**nothing, **who, "member_epoch": epoch, **said})
        assert answer.error_code == 0
        self.epoch = answer.member_epoch


Member = ClassicMember | ConsumerMember
PROTOCOLS = pytest.mark.parametrize("protocol", [ClassicMember, ConsumerMember])
Scenario = Callable[[World], Coroutine[Any, Any, None]]


def in_world(scenario: Scenario) -> None:
    """Play a scenario with a broker in a time that is counted and not waited for, where nothing goes wrong."""
    world = World(1)

    async def play() -> None:
        await world.start_broker()
        world.is_healed = True
        topic = {"name": "orders", "num_partitions": 4, "replication_factor": -1, "assignments": [], "configs": []}
        await Process(world, "admin").ask(CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000, validate_only=False)
        await scenario(world)

    world.loop.run(play())
    assert world.anomalies == []


def broker_of(world: World) -> Broker:
    assert world.broker is not None
    return world.broker


def members_now(world: World) -> set[str]:
    group = broker_of(world).log.state.groups.named(GROUP)
    assert group is not None
    assert isinstance(group.machine, ClassicGroup | ConsumerGroup)
    members = group.machine.members
    return {member if isinstance(member, str) else member.member_id for member in members}


def session_s(world: World, member: Member) -> float:
    is_classic = isinstance(member, ClassicMember)
    return (SESSION_MS if is_classic else broker_of(world).limits.consumer_group_session_timeout_ms) / 1000


async def check_missed_after(world: World, member: Member, seconds: float) -> None:
    """It is a member for so long from now on, and no longer."""
    await asyncio.sleep(seconds - MOMENT_S)
    assert member.member_id in members_now(world)
    await asyncio.sleep(2 * MOMENT_S)
    assert member.member_id not in members_now(world)


@PROTOCOLS
def test_who_is_killed_is_missed_after_a_share_of_its_session(protocol: type[Member]) -> None:
    async def scenario(world: World) -> None:
        process, member = Process(world, "left"), protocol("m")
        await member.join(process)
        process.die()
        await check_missed_after(world, member, SHARE * session_s(world, member))
        assert broker_of(world).metrics.group_events["member_expired"] == 1

    in_world(scenario)


@PROTOCOLS
def test_who_connects_anew_and_shows_itself_has_its_whole_session_again(protocol: type[Member]) -> None:
    async def scenario(world: World) -> None:
        process, member = Process(world, "left"), protocol("m")
        await member.join(process)
        process.die()
        await asyncio.sleep(SHARE * session_s(world, member) - MOMENT_S)
        await member.show_itself(process)
        await check_missed_after(world, member, session_s(world, member))

    in_world(scenario)


def test_a_commit_over_another_connection_is_a_sign_of_life() -> None:
    async def scenario(world: World) -> None:
        process, member = Process(world, "left"), ClassicMember("m")
        await member.join(process)
        process.die()
        await asyncio.sleep(MOMENT_S)
        who = {"group_id": GROUP, "generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
        offset = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": "orders", "partitions": [{"partition_index": 0, **offset}]}]
        await process.ask(OFFSET_COMMIT, 8, **who, group_instance_id=None, topics=topics)
        await check_missed_after(world, member, session_s(world, member))

    in_world(scenario)


@PROTOCOLS
def test_a_static_member_has_its_whole_session_to_come_back(protocol: type[Member]) -> None:
    async def scenario(world: World) -> None:
        process, member = Process(world, "left"), protocol("m", "till 1")
        await member.join(process)
        process.die()
        await check_missed_after(world, member, session_s(world, member))

    in_world(scenario)


@PROTOCOLS
def test_the_end_of_a_connection_that_a_member_has_left_before_means_nothing(protocol: type[Member]) -> None:
    async def scenario(world: World) -> None:
        first, second, member = Process(world, "first"), Process(world, "second"), protocol("m")
        await member.join(first)
        await member.show_itself(second)
        first.die()
        await check_missed_after(world, member, session_s(world, member))

    in_world(scenario)


def test_the_end_of_a_connection_says_something_of_all_who_spoke_over_it() -> None:
    async def scenario(world: World) -> None:
        process, other = Process(world, "left"), Process(world, "right")
        members = [ConsumerMember("a"), ConsumerMember("b"), ConsumerMember("c")]
        for member in members[:2]:
            await member.join(process)
        await members[2].join(other)
        process.die()
        await asyncio.sleep(SHARE * session_s(world, members[0]) + MOMENT_S)
        assert members_now(world) == {"c"}

    in_world(scenario)


def test_who_is_killed_while_it_waits_for_others_does_not_keep_them_waiting() -> None:
    async def scenario(world: World) -> None:
        staying, killed = ClassicMember("staying"), ClassicMember("killed")
        here, there = Process(world, "here"), Process(world, "there")
        await staying.join(here)
        killed.member_id = (await killed.ask_to_join(there)).member_id
        joining = world.spawn(killed.join(there), "joining")
        await asyncio.sleep(MOMENT_S)
        joining.cancel()
        there.die()
        began_s = world.loop.time()
        answer = await staying.ask_to_join(here)
        assert world.loop.time() - began_s == pytest.approx(SHARE * session_s(world, killed), abs=MOMENT_S)
        assert [member.member_id for member in answer.members] == [staying.member_id]

    in_world(scenario)


@PROTOCOLS
def test_a_restart_of_the_broker_shortens_no_session(protocol: type[Member]) -> None:
    async def scenario(world: World) -> None:
        process, member = Process(world, "left"), protocol("m")
        await member.join(process)
        await world.restart_broker()
        await check_missed_after(world, member, session_s(world, member))

    in_world(scenario)


@PROTOCOLS
def test_what_is_known_of_connections_goes_with_the_member_and_with_the_connection(protocol: type[Member]) -> None:
    async def scenario(world: World) -> None:
        process, left, killed = Process(world, "left"), protocol("a"), protocol("b")
        heard_over = broker_of(world).groups._members._connection_of
        await left.join(process)
        assert len(heard_over) == 1
        await left.leave(process)
        assert len(heard_over) == 0
        await killed.join(process)
        process.die()
        await asyncio.sleep(MOMENT_S)
        assert len(heard_over) == 0

    in_world(scenario)
