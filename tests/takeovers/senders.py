"""Clients that send numbered messages, one after the other: those of Python, and programs of Java and of Go."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from foreign_programs import go, java

TOPIC: Final = "cut-off"


class Acknowledged(NamedTuple):
    at: float
    value: bytes


class Sender(Protocol):
    """Sends numbered messages one after the other until it is told to stop; notes what was acknowledged."""

    def __call__(self, bootstrap: str, stop: threading.Event, acknowledged: list[Acknowledged]) -> None: ...


def librdkafka(bootstrap: str, stop: threading.Event, acknowledged: list[Acknowledged]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    number = 0
    while not stop.is_set():
        value = b"%d" % number

        def note(error: object, _: object, value: bytes = value) -> None:
            if error is None:
                acknowledged.append(Acknowledged(time.monotonic(), value))

        producer.produce(TOPIC, value, partition=0, on_delivery=note)
        producer.flush()
        number += 1


def librdkafka_transactions(bootstrap: str, stop: threading.Event, acknowledged: list[Acknowledged]) -> None:
    from confluent_kafka import Producer

    from producing import transacted

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "cut-off", "log_level": 0})
    producer.init_transactions()
    number = 0
    while not stop.is_set():
        value = b"%d" % number
        if transacted(producer, partial(producer.produce, TOPIC, value, partition=0)):
            acknowledged.append(Acknowledged(time.monotonic(), value))
            number += 1


def aiokafka(bootstrap: str, stop: threading.Event, acknowledged: list[Acknowledged]) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        number = 0
        while not stop.is_set():
            value = b"%d" % number
            await (await producer.send(TOPIC, value, partition=0))
            acknowledged.append(Acknowledged(time.monotonic(), value))
            number += 1
        await producer.stop()

    asyncio.run(send())


def kafka_python(bootstrap: str, stop: threading.Event, acknowledged: list[Acknowledged]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), enable_idempotence=True)
    number = 0
    while not stop.is_set():
        value = b"%d" % number
        producer.send(TOPIC, value, partition=0).get(120)
        acknowledged.append(Acknowledged(time.monotonic(), value))
        number += 1
    producer.close()


class Program:
    """A client of another language, whose program prints each number when it is acknowledged."""

    def __init__(self, command: Callable[[], list[str]], *options: str) -> None:
        self._command, self._options = command, options

    def __call__(self, bootstrap: str, stop: threading.Event, acknowledged: list[Acknowledged]) -> None:
        with subprocess.Popen(
            [*self._command(), bootstrap, TOPIC, *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            for line in program.stdout:
                acknowledged.append(Acknowledged(time.monotonic(), line.strip()))
                if stop.is_set():
                    program.stdin.close()


def java_sender() -> list[str]:
    return java("semel.Sender")


def franz_go() -> list[str]:
    return [str(go("sender"))]


CLIENTS: Final[dict[str, Sender]] = {
    "librdkafka": librdkafka,
    "librdkafka, transactions": librdkafka_transactions,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "Java": Program(java_sender),
    "Java, transactions": Program(java_sender, "cut-off"),
    "franz-go": Program(franz_go),
    "franz-go, transactions": Program(franz_go, "cut-off"),
    "franz-go, soon again": Program(franz_go, "cut-off", "soon again"),
}
