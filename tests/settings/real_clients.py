"""The real clients, made with the settings that a test gives: what they refuse, they refuse here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from semel.settings import Client, Role

SECONDS_MAX = 120
# kafka-python asks the broker who it is unless it is told, and nobody listens where it is only made.
NOBODY = "127.0.0.1:1"
BROKER_OF_KAFKA_PYTHON = (4, 0)


def is_refused(client: Client, role: Role, config: Mapping[str, Any]) -> bool:
    """Does the client refuse to be made with these settings?"""
    try:
        _MAKERS[client](role, dict(config))
    except Exception:
        return True
    return False


def _confluent(role: Role, config: dict[str, Any]) -> None:
    config = {"bootstrap.servers": NOBODY, "log_level": 0, **config}
    if role is Role.PRODUCER:
        confluent_kafka.Producer(config)
    else:
        confluent_kafka.Consumer({"group.id": "settings", **config}).close()


def _aiokafka(role: Role, config: dict[str, Any]) -> None:
    async def make() -> None:
        made = AIOKafkaProducer(**config) if role is Role.PRODUCER else AIOKafkaConsumer(group_id="settings", **config)
        await (made.stop() if role is Role.CONSUMER else _forget(made))

    asyncio.run(make())


async def _forget(producer: AIOKafkaProducer) -> None:
    # One that was never started has nothing to stop, and complains when it is collected.
    producer._closed = True


def _kafka_python(role: Role, config: dict[str, Any]) -> None:
    config = {"bootstrap_servers": NOBODY, "api_version": BROKER_OF_KAFKA_PYTHON, **config}
    if role is Role.PRODUCER:
        KafkaProducer(**config).close(timeout=0)
    else:
        KafkaConsumer(group_id="settings", **config).close(autocommit=False)


_MAKERS: dict[Client, Callable[[Role, dict[str, Any]], None]] = {
    Client.CONFLUENT: _confluent,
    Client.AIOKAFKA: _aiokafka,
    Client.KAFKA_PYTHON: _kafka_python,
}
