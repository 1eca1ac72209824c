"""Reads a topic with a real client, as consumers see it. It must never commit offsets."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

# How long the reader waits for the next record before the end.
PATIENCE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
READ_MESSAGES_MAX: Final = 1_000
# How soon a client knows a broker that has just started.
METADATA_MS: Final = 1_000

# When librdkafka has lost all brokers, it asks its bootstrap servers again and drops the brokers it knew. If that
# happens while it connects to one of them again, the old one never ends (seen in 2.16.0), and the client neither goes
# on nor closes. Here it need not ask them: the address stays the same, or Metadata has said the next one.
CONNECTION: Final = {
    "metadata.recovery.strategy": "none",
    "topic.metadata.refresh.interval.ms": METADATA_MS,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


class ReadingStopped(RuntimeError):
    """No more records arrived, although the end was not reached; the message says from where."""


def reader_of(bootstrap: str, topic: str, *, committed: bool = True) -> "Consumer":
    """A consumer at the beginning of every partition, which gets an event at each end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            **CONNECTION,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    began = time.monotonic()
    # A broker that has just been asked to create the topic, or follows one that has, may not know its partitions yet.
    while not (partitions := consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions):
        if time.monotonic() - began > PATIENCE_SECONDS:
            consumer.close()
            raise ReadingStopped(f"no broker knows the partitions of topic {topic!r}")
        time.sleep(POLL_SECONDS)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    return consumer


def to_the_end(bootstrap: str, topic: str, *, committed: bool = True) -> "Iterator[Message]":
    """Every record of the topic now; those of a partition in the order of the log."""
    from confluent_kafka import KafkaError

    consumer = reader_of(bootstrap, topic, committed=committed)
    try:
        unread = {place.partition for place in consumer.assignment()}
        last_came = time.monotonic()
        while unread:
            for message in consumer.consume(READ_MESSAGES_MAX, POLL_SECONDS):
                last_came = time.monotonic()
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
            if time.monotonic() - last_came > PATIENCE_SECONDS:
                raise ReadingStopped(f"reading back {topic} stopped in the partitions {sorted(unread)}")
    finally:
        consumer.close()
