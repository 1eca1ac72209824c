"""A real producer for tests whose subject is the broker."""

from collections.abc import Callable
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer


class Reachable(Protocol):
    """A broker, or what stands before one."""

    @property
    def bootstrap(self) -> str: ...


def idempotent_producer(broker: Reachable) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 10,
        }
    )


def deliver(producer: Producer, topic: str, values: list[bytes]) -> list[int]:
    """Produce, wait, and answer the offsets that were acknowledged."""
    offsets: list[int] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        assert error is None
        offsets.append(message.offset() or 0)

    for value in values:
        producer.produce(topic, value, callback=acknowledged)
    assert producer.flush(30) == 0
    return offsets


def transacted(producer: Producer, work: Callable[[], None], seconds: float = -1) -> bool:
    """Whether what `work` produces was committed, in one transaction. Over a takeover a producer may have to abort, as
    its protocol says."""
    producer.begin_transaction()
    try:
        work()
        while True:
            try:
                producer.commit_transaction(seconds)
                return True
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(seconds)
        return False
