"""Consumers that share partitions out by themselves find their offsets again, whatever becomes of the broker."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest

from asking import Asker
from semel.testing.broker import FaultyBroker
from semel.wire.records import Record

SECONDS_MAX = 30
TOPIC = "orders"


class Turn(NamedTuple):
    """What a consumer found committed, which record came next, and what is committed since it read that."""

    before: int | None
    read: bytes
    after: int | None


def confluent_turn(bootstrap: str) -> Turn:
    settings = {"group.id": "confluent", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
    place = confluent_kafka.TopicPartition(TOPIC, 0)

    def committed() -> int | None:
        (found,) = consumer.committed([place], timeout=SECONDS_MAX)
        return found.offset if found.offset >= 0 else None

    before = committed()
    consumer.assign([place])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    turn = Turn(before, message.value() or b"", committed())
    consumer.close()
    return turn


def kafka_python_turn(bootstrap: str) -> Turn:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id="kafka-python", enable_auto_commit=False, auto_offset_reset="earliest"
    )
    place = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([place])
    before = consumer.committed(place)
    ((message,),) = consumer.poll(timeout_ms=SECONDS_MAX * 1000, max_records=1).values()
    consumer.commit()
    turn = Turn(before, message.value, consumer.committed(place))
    consumer.close()
    return turn


def aiokafka_turn(bootstrap: str) -> Turn:
    async def turn() -> Turn:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id="aiokafka", enable_auto_commit=False, auto_offset_reset="earliest"
        )
        await consumer.start()
        place = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([place])
        before = await consumer.committed(place)
        message = await consumer.getone()
        await consumer.commit()
        turn = Turn(before, message.value, await consumer.committed(place))
        await consumer.stop()
        return turn

    return asyncio.run(asyncio.wait_for(turn(), SECONDS_MAX))


@pytest.mark.parametrize("take_turn", [confluent_turn, kafka_python_turn, aiokafka_turn])
def test_a_consumer_goes_on_where_it_committed_after_a_restart_and_after_a_kill(
    take_turn: Callable[[str], Turn], semel_broker: FaultyBroker
) -> None:
    ask = Asker(semel_broker.bootstrap)
    ask.create(TOPIC)
    ask.produce(TOPIC, [Record(b"%d" % number, timestamp_ms=1) for number in range(3)])
    ask.close()
    assert take_turn(semel_broker.bootstrap) == Turn(None, b"0", 1)
    semel_broker.restart()
    assert take_turn(semel_broker.bootstrap) == Turn(1, b"1", 2)
    semel_broker.kill()
    semel_broker.restart()
    assert take_turn(semel_broker.bootstrap) == Turn(2, b"2", 3)
