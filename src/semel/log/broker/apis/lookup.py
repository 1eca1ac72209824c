"""Finds the topic or partition that a request names, or refuses with the protocol's error. It never creates any."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.groups.partitions import Partitions
from semel.log.core.topics import Topic
from semel.log.replica.cache import Unreadable
from semel.log.storage.journal import Corrupt, Damaged
from semel.log.storage.partition_log import PartitionLog
from semel.log.store import StoreError
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps

T = TypeVar("T")


def topic_identified(broker: Serving, topic_id: bytes) -> Topic:
    topic = broker.log.state.catalog.identified(topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return topic


def partition_of(broker: Serving, topic_name: str, index: int) -> tuple[Topic, PartitionLog]:
    topic = broker.log.state.catalog.existing(topic_name)
    partition = broker.log.state.partitions.at(topic.number, index)
    if partition is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic_name}' has no partition {index}")
    return topic, partition


def refused_read(broker: Serving, error: Exception) -> Refused:
    """The refusal when records cannot be read, which is logged here. If the store no longer has them, another broker
    has taken over. A client must not wait for damaged ones as for a disk that is busy, nor skip them.
    """
    broker.runtime.read_failed(error)
    code = ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(error, Unreadable) and error.is_gone:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif isinstance(error, Corrupt | Unreadable):
        code = ErrorCode.CORRUPT_MESSAGE
    return Refused(code, f"the records cannot be read: {error}")


@contextmanager
def reading(broker: Serving) -> Iterator[None]:
    """Refused if records cannot be read meanwhile."""
    try:
        yield
    except (OSError, Damaged, StoreError) as error:
        raise refused_read(broker, error) from None


def identified(broker: Serving, partitions: Partitions) -> list[tuple[bytes, list[int]]]:
    """The id of each topic of these partitions, and their indexes; without topics that were deleted."""
    return [
        (topic.topic_id, indexes)
        for number, indexes in partitions.indexes()
        if (topic := broker.log.state.catalog.numbered(number)) is not None
    ]


def names_seen(broker: Serving, exchange: Exchange, names: Iterable[str]) -> Steps[list[str]]:
    """Those of these topics that the client may see."""
    seen = []
    for name in names:
        if broker.guard.sees(exchange, DESCRIBE_TOPIC, name):
            seen.append(name)
        yield 1
    return seen


def check_leader_epoch(broker: Serving, epoch: int) -> None:
    """Refuse a leader epoch that is not the current one; -1 means that the client does not know it."""
    current = broker.log.state.partitions.leader_epoch
    if epoch not in (current, -1):
        error = ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > current else ErrorCode.FENCED_LEADER_EPOCH
        raise Refused(error, f"the leader's epoch is {current}, not {epoch}")


def repeated(items: Iterable[T]) -> Steps[set[T]]:
    """The items that occur more than once, to be refused: two changes of one thing would contradict each other."""
    once: set[T] = set()
    twice: set[T] = set()
    for item in items:
        (twice if item in once else once).add(item)
        yield 1
    return twice
