"""The loads of a takeover: clients that go on while the broker that they write to is lost. Each is in a process of its
own, run by `bench.clients.run`. Nothing here may know which broker it talks to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from typing import TYPE_CHECKING, Final

from bench.clients import Barrier, LoadFailed, producer_configuration, send_one

if TYPE_CHECKING:
    from confluent_kafka import Producer

VALUE: Final = b"x" * 100
WARM: Final = 20
# So that the clients leave the machine to the brokers.
PAUSE_SECONDS: Final = 0.005
# Twice as long as any takeover takes.
PATIENCE_SECONDS: Final = 30.0
# A producer that hangs may hang when it is closed, too; so it is kept until its process ends.
_hanging: list[Producer] = []


def longest_wait(
    bootstrap: str, topic: str, transactional_id: str | None, lost_at: Synchronized[float], barrier: Barrier
) -> float:
    """Send one message after another to partition 0, each in a transaction if there is an id, until one is acknowledged
    that was begun after the broker was lost. `lost_at` is that moment by the `perf_counter`, and 0 before it. Returns
    the longest time between two acknowledgements, in seconds; infinite if the producer did not go on."""
    from confluent_kafka import KafkaException, Producer

    patience_ms = int(PATIENCE_SECONDS * 1000)
    settings = producer_configuration(bootstrap, idempotent=True) | {"linger.ms": 0, "message.timeout.ms": patience_ms}
    if transactional_id is not None:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": patience_ms}
    producer = Producer(settings)
    send: Callable[[], None] = partial(send_one, producer, topic, VALUE, 0)
    if transactional_id is not None:
        producer.init_transactions(PATIENCE_SECONDS)
        send = partial(_transact, producer, topic)
    for _ in range(WARM):
        send()
    barrier()
    longest_seconds, last = 0.0, time.perf_counter()
    while True:
        began = time.perf_counter()
        try:
            send()
        except (LoadFailed, KafkaException):
            _hanging.append(producer)
            return math.inf
        acknowledged = time.perf_counter()
        longest_seconds = max(longest_seconds, acknowledged - last)
        last = acknowledged
        if 0 < lost_at.value < began:
            return longest_seconds
        time.sleep(PAUSE_SECONDS)


def _transact(producer: Producer, topic: str) -> None:
    """Commit a transaction of one message; one that is aborted is written again."""
    from confluent_kafka import KafkaException

    deadline = time.perf_counter() + PATIENCE_SECONDS
    while True:
        try:
            producer.begin_transaction()
            producer.produce(topic, VALUE, partition=0)
            _again_until(deadline, producer.commit_transaction)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            _again_until(deadline, producer.abort_transaction)
        else:
            return


def _again_until(deadline: float, end: Callable[[float], object]) -> None:
    """The end of a transaction, as librdkafka's manual wants it."""
    from confluent_kafka import KafkaException

    while True:
        try:
            end(max(deadline - time.perf_counter(), 1.0))
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.perf_counter() > deadline:
                raise
        else:
            return
