"""The loads of transactions: librdkafka through confluent-kafka, each client in a process of its own, run by
`bench.clients.run`. Nothing here may know which broker it talks to."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence

from bench.clients import ACK_TIMEOUT_SECONDS, Barrier, LoadFailed


def transactions_one_at_a_time(
    bootstrap: str, topic: str, partitions: int, value_bytes: int, warm: int, count: int, barrier: Barrier
) -> array[float]:
    """Begin, write one record to each partition, commit, and begin the next. Returns the time that each transaction
    took in milliseconds."""
    from confluent_kafka import Producer

    producer = Producer(_producer_configuration(bootstrap, topic))
    producer.init_transactions(ACK_TIMEOUT_SECONDS)
    value = b"x" * value_bytes

    def transact() -> None:
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition)
        producer.commit_transaction(ACK_TIMEOUT_SECONDS)

    for _ in range(warm):
        transact()
    barrier()
    took_ms = array("d")
    for _ in range(count):
        started = time.perf_counter()
        transact()
        took_ms.append((time.perf_counter() - started) * 1e3)
    return took_ms


def copy_in_transactions(
    bootstrap: str,
    source: str,
    target: str,
    records_per_transaction: int,
    warm: int,
    count: int,
    backoff_ms: int,
    barrier: Barrier,
) -> array[float]:
    """Read `count` records in a group, write each of them again, and commit both in one transaction. Returns the time
    that each transaction took in milliseconds, from reading its records on."""
    from confluent_kafka import Consumer, Message, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": target,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    producer = Producer(_producer_configuration(bootstrap, target) | {"retry.backoff.ms": backoff_ms})
    producer.init_transactions(ACK_TIMEOUT_SECONDS)
    consumer.subscribe([source])

    def copy(messages: Sequence[Message]) -> None:
        ends = {message.partition() or 0: (message.offset() or 0) + 1 for message in messages}
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition() or 0)
        places = [TopicPartition(source, partition, end) for partition, end in ends.items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), ACK_TIMEOUT_SECONDS)
        producer.commit_transaction(ACK_TIMEOUT_SECONDS)

    def copy_so_many(records: int) -> array[float]:
        copied = 0
        took_ms = array("d")
        while copied < records:
            started = time.perf_counter()
            messages = consumer.consume(min(records_per_transaction, records - copied), timeout=30.0)
            if not messages:
                raise LoadFailed(f"{copied} of {records} records came, then nothing for 30 s")
            for message in messages:
                failure = message.error()
                if failure is not None:
                    raise LoadFailed(str(failure))
            copy(messages)
            copied += len(messages)
            took_ms.append((time.perf_counter() - started) * 1e3)
        return took_ms

    try:
        copy_so_many(warm)
        barrier()
        return copy_so_many(count)
    finally:
        consumer.close()


def _producer_configuration(bootstrap: str, transactional_id: str) -> dict[str, str | int]:
    return {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
