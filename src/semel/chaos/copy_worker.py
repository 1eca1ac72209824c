"""A worker of the copy, in its own process: reads records, writes copies, and commits both in one transaction, until it
is killed. It does what a careful program would do and no more: it must never know of the faults, nor keep any state
outside its transactions.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from semel.chaos.topic_reader import CONNECTION

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

SOURCE: Final = "source"
TARGET: Final = "target"
GROUP: Final = "copy"
# The shortest session that a broker grants by default.
SESSION_TIMEOUT_MS: Final = 6_000
# How long a transaction that is not full waits for more records.
FILL_SECONDS: Final = 0.2
# How long a call may take while its broker is away.
CALL_SECONDS_MAX: Final = 30.0


def copy_of(value: bytes) -> bytes:
    return b"copy of " + value


def work(bootstrap: str, number: int, transaction_records: int) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

    fatal: list[KafkaError] = []

    def note(error: KafkaError) -> None:
        # If another member has its instance id, librdkafka reports that once, and never reads again.
        if error.fatal() or error.code() == KafkaError._FATAL:
            fatal.append(error)

    connection = {**CONNECTION, "bootstrap.servers": bootstrap, "error_cb": note}
    consumer = Consumer(
        {
            **connection,
            "group.id": GROUP,
            # The next process with this id replaces the killed one without a rebalance.
            "group.instance.id": f"worker-{number}",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 6,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({**connection, "transactional.id": f"worker-{number}", "linger.ms": 1})
    producer.init_transactions(CALL_SECONDS_MAX)
    consumer.subscribe([SOURCE])
    while True:
        polled = consumer.consume(transaction_records, FILL_SECONDS)
        for each in polled:
            if (error := each.error()) is not None:
                note(error)
        if fatal:
            raise KafkaException(fatal[0])
        messages = [each for each in polled if each.error() is None]
        if not messages:
            continue
        try:
            _copy(consumer, producer, messages)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(CALL_SECONDS_MAX)
            _go_back(consumer)


def _copy(consumer: "Consumer", producer: "Producer", messages: "Sequence[Message]") -> None:
    from confluent_kafka import TopicPartition

    ends = {message.partition() or 0: (message.offset() or 0) + 1 for message in messages}
    producer.begin_transaction()
    for message in messages:
        producer.produce(TARGET, copy_of(message.value() or b""), partition=message.partition() or 0)
    producer.send_offsets_to_transaction(
        [TopicPartition(SOURCE, partition, end) for partition, end in ends.items()],
        consumer.consumer_group_metadata(),
        CALL_SECONDS_MAX,
    )
    producer.commit_transaction(CALL_SECONDS_MAX)


def _go_back(consumer: "Consumer") -> None:
    """Go back to the committed offsets, to read the records of the aborted transaction again."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    for place in consumer.committed(consumer.assignment(), CALL_SECONDS_MAX):
        offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(TopicPartition(place.topic, place.partition, offset))


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
