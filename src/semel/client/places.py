"""Places in the log: topics, partitions, slices of partitions, and which records of transactions a reader sees.

All of it is plain data that can be pickled, because the driver plans with it and a task on another machine reads with
it. This file must never contain requests.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final
from uuid import UUID

# Stands for the id of a topic if the brokers are too old to give topics ids.
NO_ID: Final = UUID(int=0)


@dataclass(frozen=True)
class Topic:
    """A topic as it is now. One that is deleted and created again has the same name and another id."""

    name: str
    id: UUID
    partitions: int


@dataclass(frozen=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Slice:
    """The records of one partition from offset `start` on, up to but not including `end`."""

    topic: Topic
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.partition)


class Edge(Enum):
    """An end of a partition, with the number that ListOffsets uses for it."""

    EARLIEST = -2
    LATEST = -1


EARLIEST: Final = Edge.EARLIEST
LATEST: Final = Edge.LATEST

# An end of a partition, or the first record of this time (in ms) or later.
Position = Edge | int


class Isolation(IntEnum):
    """Which records of transactions are shown: all that were written, or those that were committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
