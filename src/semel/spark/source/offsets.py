"""How far a query has read, as Spark keeps it in its checkpoint: JSON, with the id of each topic beside its offsets.

    {"payments": {"0": 23, "1": 40, "id": "5bd1..."}}

An offset is that of the next record to be read. The first batch of a query also says where it began (`"from"`), because
Spark asks a restarted query for its initial offsets again, and by then "latest" would be another offset. The text also
says how far the query had come in partitions that are gone (`"gone"`), because one that comes back must not be read
from its beginning again. This file also reads the offsets of Spark's own Kafka source, which are the same without ids.
It must never write the same offsets in two ways: Spark compares the texts, and takes any difference for new records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from semel.client.places import NO_ID, TopicPartition
from semel.spark.source.errors import CheckpointNotUnderstood

_ID: Final = "id"
_FROM: Final = "from"
_GONE: Final = "gone"


@dataclass(frozen=True)
class Offsets:
    """The next offset of each partition, the id of each topic, where the batch began if it is the first, and how far
    the query had come in partitions that are gone."""

    ids: Mapping[str, UUID]
    at: Mapping[TopicPartition, int]
    began: Mapping[TopicPartition, int] = field(default_factory=dict)
    gone: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        """How far the query has come, in the partitions that exist and in those that are gone."""
        return {**self.gone, **self.at}

    def to_json(self) -> dict[str, Any]:
        at, began, gone = _by_topic(self.at), _by_topic(self.began), _by_topic(self.gone)
        return {
            name: dict(self._entries(name, at.get(name, {}), began.get(name, {}), gone.get(name, {})))
            for name in sorted(self.ids)
        }

    def _entries(
        self, name: str, at: dict[str, int], began: dict[str, int], gone: dict[str, int]
    ) -> Iterable[tuple[str, Any]]:
        yield from at.items()
        if began:
            yield _FROM, began
        if gone:
            yield _GONE, gone
        if (topic_id := self.ids[name]) != NO_ID:
            yield _ID, str(topic_id)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Offsets":
        ids: dict[str, UUID] = {}
        at: dict[TopicPartition, int] = {}
        began: dict[TopicPartition, int] = {}
        gone: dict[TopicPartition, int] = {}
        try:
            for name, entries in document.items():
                numbers = dict(entries)
                ids[name] = UUID(numbers.pop(_ID)) if _ID in numbers else NO_ID
                began.update(_by_partition(name, numbers.pop(_FROM, {})))
                gone.update(_by_partition(name, numbers.pop(_GONE, {})))
                at.update(_by_partition(name, numbers))
        except (ValueError, TypeError, AttributeError):
            raise CheckpointNotUnderstood(
                f"the checkpoint holds {document}, which is not what this source writes: it belongs to another one"
            ) from None
        return cls(ids, at, began, gone)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """In one pass, because there may be thousands of topics."""
    topics: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        topics.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return topics


def _by_partition(name: str, numbers: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(name, int(number)): int(offset) for number, offset in numbers.items()}
