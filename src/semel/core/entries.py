"""What the log remembers: every change of state is one of these entries, and nothing else changes state.

A state machine decides (request -> entries and an answer) and applies (entry -> new state). The same `apply` runs when
a request is served and when the journal is replayed after a crash, so there is no second path that could disagree.
Entries are plain values; how they become bytes is the business of `semel.storage.encoding`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic came to be. `number` names it in the journal and is never used again, not by a namesake either."""

    number: int
    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic ceased to be. Producer ids below `next_producer_id` may have had state in it that is forgotten now."""

    number: int
    next_producer_id: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew to `partition_count` partitions in all."""

    number: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """These are the configurations set on a topic from now on: all of them, not a difference."""

    number: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """The producer ids from `first` on, `count` of them, may be handed out: a crash wastes ids, it repeats none."""

    first: int
    count: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """Records of a partition below `offset` are gone, by retention or on request."""

    number: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class BatchAppended:
    """A record batch took its offsets. `batch` is the batch as stored: its header, then records nobody looks into."""

    number: int
    partition: int
    at_ms: int
    batch: bytes | memoryview


Entry = (
    TopicCreated | TopicDeleted | PartitionsAdded | ConfigsChanged | ProducerIdsReserved | LogStartMoved | BatchAppended
)
