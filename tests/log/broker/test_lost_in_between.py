"""Connections that are lost while a request of theirs is between two steps: nothing of them is left behind."""

import asyncio
from collections.abc import Callable
from typing import Any

import plain_messages as messages
from asking import fetch_fields
from semel.log.broker.broker import Broker
from semel.log.core.groups.consumer import ConsumerGroup
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT, FETCH, PRODUCE
from stepping import SMALL_STEPS, Asked, create


def frame_of(api_key: int, version: int, **values: Any) -> bytes:
    return messages.encode_request(api_key, version, 1, "client", messages.build_request(api_key, version, **values))


def lost_in_between(frame: bytes, when_lost: Callable[[Broker], None] = lambda broker: None) -> dict[str, int]:
    """What is left of a connection that sent this and was lost while it was served."""

    async def run() -> dict[str, int]:
        async with Broker(durability="os", pace=SMALL_STEPS) as broker:
            create(broker, "orders", 3)
            _, writer = await asyncio.open_connection("127.0.0.1", broker.listeners[0].port)
            writer.write(frame)
            for _ in range(10_000):
                await asyncio.sleep(0)
                if not broker.turns.is_idle:
                    break
            (connection,) = list(broker.connections)
            connection.abort()
            for _ in range(3):
                await asyncio.sleep(0)
            assert not broker.turns.is_idle
            assert list(broker.connections) == []
            when_lost(broker)
            for _ in range(10_000):
                await asyncio.sleep(0)
                if broker.turns.is_idle:
                    break
            writer.close()
            return {"waiting": broker.waiting_partitions, "receiving": broker.receive_memory.taken_bytes}

    return asyncio.run(run())


def test_a_fetch_does_not_wait_for_a_client_that_is_gone() -> None:
    wanted = fetch_fields("orders", wait_ms=10_000)
    (partition,) = wanted["topics"][0]["partitions"]
    wanted["topics"][0]["partitions"] = [{**partition, "partition": index} for index in range(3)]
    assert lost_in_between(frame_of(FETCH, 12, **wanted)) == {"waiting": 0, "receiving": 0}


def test_the_room_of_a_large_request_is_taken_until_it_has_been_served() -> None:
    sent = [{"index": index, "records": bytes(300_000)} for index in range(2)]
    topics = [{"name": "nowhere", "partition_data": sent}]
    frame = frame_of(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics)
    room: list[int] = []
    left = lost_in_between(frame, lambda broker: room.append(broker.receive_memory.taken_bytes))
    assert room[0] > 500_000
    assert left == {"waiting": 0, "receiving": 0}


async def test_a_member_that_was_heard_over_a_connection_that_is_gone_by_then_is_missed_soon() -> None:
    async with Broker(durability="os", pace=SMALL_STEPS) as broker:
        create(broker, "orders", 3)
        asked = Asked(
            broker,
            CONSUMER_GROUP_HEARTBEAT,
            1,
            over=1,
            group_id="readers",
            member_id="one",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["orders"],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        )
        asked.step()
        asked.is_lost = True
        broker.groups.connection_lost(1)
        assert asked.answer().error_code == 0
        group = broker.log.state.groups.named("readers")
        assert group is not None
        assert isinstance(group.machine, ConsumerGroup)
        assert group.machine.members["one"].has_lost_connection
