"""The catalog of topics: their names, ids, numbers of partitions and configurations.

Like the other state machines, `decide_...` returns the entry that would carry out a request, or raises `TopicRefused`,
and `apply` changes the catalog as an entry says. Deciding changes nothing, so a request about several topics decides
and applies them one by one. Only `decide_...` checks limits and names: an entry in the journal is valid even if the
broker has been started with lower limits since.

The catalog also remembers the names of deleted topics, for the rules about producers. If a topic is deleted and
recreated, a producer may go on with the sequence number where it stopped. Its state was deleted with the topic, and it
must not be told that records are missing. `lenient_blocks(name)` is the number of the last block of producer ids for
which this may be so. The number of names is bounded, and the bound only ever makes the rules more lenient: if there are
too many names, the oldest is merged into a floor that holds for every name. A deletion may be forgotten after the time
in which producers expire, because the rules are lenient with every producer id of that age anyway.

The catalog does not know files, and never touches records.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.log.core import configs as topic_configs
from semel.log.core.configs import TopicConfigs
from semel.log.core.entries import ConfigsChanged, PartitionsAdded, TopicCreated, TopicDeleted
from semel.log.core.values import value
from semel.wire.refusals import (
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    INVALID_TOPIC_EXCEPTION,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Refused,
)

# Kafka's limit: in Kafka a partition's directory is the topic's name, a hyphen and a number, in 255 bytes at most.
NAME_CHARACTERS_MAX: Final = 249

# A client that creates topics in a loop must not use up the broker's memory or slow its start. Client test suites leave
# fewer than ten thousand topics behind, and the catalog of ten thousand takes a few megabytes in a checkpoint.
TOPICS_MAX: Final = 10_000

# Every partition takes a file, and space in every checkpoint, even if it is empty. For the same reason Kafka refuses
# more than ten thousand in one request; here twice as many are allowed for all topics together.
PARTITIONS_MAX: Final = 20_000

# Names of deleted topics that are kept one by one. If there are more, the floor makes the rules coarser for all names.
DELETED_NAMES_MAX: Final = 10_000

_NAME = re.compile(r"[a-zA-Z0-9._-]+")

_TOPIC_ID_BYTES: Final = 16

CatalogEntry = TopicCreated | TopicDeleted | PartitionsAdded | ConfigsChanged


class TopicRefused(Refused):
    """A change of the catalog that is not allowed; `error` is the protocol's number for it."""


@dataclass(slots=True)
class Topic:
    """A topic as it is now. One object for its whole life, so a partition may keep it and see its changes.

    Only `Catalog.apply` changes it.
    """

    number: int
    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    parsed: TopicConfigs
    created_at_ms: int


@value
class _Deletion:
    """When the topic was deleted, at `at_ms`, producer ids were from the first `id_blocks` blocks."""

    id_blocks: int
    at_ms: int


_NEVER: Final = _Deletion(0, 0)


class Catalog:
    """All topics, by name, by id and by number."""

    def __init__(
        self,
        *,
        topics_max: int = TOPICS_MAX,
        partitions_max: int = PARTITIONS_MAX,
        deleted_names_max: int = DELETED_NAMES_MAX,
    ) -> None:
        self._topics_max = topics_max
        self._partitions_max = partitions_max
        self._deleted_names_max = deleted_names_max
        self._clear()

    def _clear(self) -> None:
        # Rises when a topic is created, deleted or grows, so that a caller knows how long it may cache a result.
        self.changes = 0
        self._next_number = 0
        self._partition_count = 0
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_number: dict[int, Topic] = {}
        # Metrics replace `.` by `_`, so Kafka allows no two names that differ only in these.
        self._by_collision: dict[str, Topic] = {}
        # In the order of deletion: a name that is deleted again moves to the end.
        self._deleted: dict[str, _Deletion] = {}
        self._floor = _NEVER

    # Looking up

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Topic]:
        """The topics in the order of their numbers, which is the order in which they were made."""
        return iter(self._by_number.values())

    @property
    def partition_count(self) -> int:
        """The partitions of all topics together."""
        return self._partition_count

    def named(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def identified(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def numbered(self, number: int) -> Topic | None:
        return self._by_number.get(number)

    # Deciding

    def decide_create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str | None],
        topic_id: bytes,
        now_ms: int,
        *,
        replication_factor: int = -1,
    ) -> TopicCreated:
        """The entry that creates a topic. `topic_id` is 16 bytes that the caller draws at random."""
        if len(topic_id) != _TOPIC_ID_BYTES or topic_id in self._by_id:
            raise ValueError(f"a new topic needs a fresh id of {_TOPIC_ID_BYTES} bytes, not {topic_id.hex()}")
        check_name(name)
        if name in self._by_name:
            raise TopicRefused(TOPIC_ALREADY_EXISTS, f"topic '{name}' exists already")
        other = self._by_collision.get(_collision_key(name))
        if other is not None:
            # Without the name of the other topic, which the client may not be allowed to see.
            raise TopicRefused(
                INVALID_TOPIC_EXCEPTION, f"topic '{name}' differs from an existing topic in '.' and '_' only"
            )
        canonical_configs = topic_configs.canonical(configs)
        if replication_factor not in (-1, 1):
            raise TopicRefused(
                INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor}: there is one broker, so it must be 1",
            )
        if len(self._by_number) >= self._topics_max:
            raise TopicRefused(
                POLICY_VIOLATION, f"there are {self._topics_max} topics, no more are allowed (topics_max)"
            )
        if partition_count < 1:
            raise TopicRefused(INVALID_PARTITIONS, f"a topic needs at least one partition, not {partition_count}")
        self._check_partitions(partition_count)
        return TopicCreated(self._next_number, name, topic_id, partition_count, canonical_configs, now_ms)

    def decide_delete(self, name: str, id_blocks: int, now_ms: int) -> TopicDeleted:
        """The entry that removes a topic; `id_blocks` is how many blocks of producer ids have been reserved."""
        return TopicDeleted(self.existing(name).number, id_blocks, now_ms)

    def decide_partitions(self, name: str, partition_count: int) -> PartitionsAdded:
        """The entry that makes a topic grow to `partition_count` partitions."""
        topic = self.existing(name)
        if partition_count <= topic.partition_count:
            raise TopicRefused(
                INVALID_PARTITIONS,
                f"topic '{name}' has {topic.partition_count} partitions; {partition_count} is not more",
            )
        self._check_partitions(partition_count - topic.partition_count)
        return PartitionsAdded(topic.number, partition_count)

    def decide_configs(self, name: str, configs: Mapping[str, str | None]) -> ConfigsChanged:
        """The entry that replaces a topic's configurations; `semel.log.core.configs.altered` computes incremental
        changes.
        """
        topic = self.existing(name)
        return ConfigsChanged(topic.number, topic_configs.canonical(configs))

    def existing(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise TopicRefused(UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return topic

    def _check_partitions(self, more: int) -> None:
        if self._partition_count + more > self._partitions_max:
            raise TopicRefused(
                INVALID_PARTITIONS,
                f"{more} more partitions would make more than {self._partitions_max} in all topics together "
                "(partitions_max)",
            )

    # Applying

    def check(self, entry: CatalogEntry) -> None:
        """ValueError for an entry that cannot follow those before it: the journal is damaged, or not from semel."""
        if not isinstance(entry, TopicCreated):
            self.known(entry.number)
            return
        collision = (
            entry.number < self._next_number
            or entry.name in self._by_name
            or entry.topic_id in self._by_id
            or _collision_key(entry.name) in self._by_collision
        )
        if collision:
            raise ValueError(f"topic '{entry.name}' has a number, a name or an id that is taken")

    def apply(self, entry: CatalogEntry) -> Topic:
        """Apply an entry that `check` has accepted; return its topic, even if it is deleted now."""
        self.changes += 1
        match entry:
            case TopicCreated():
                return self._add(
                    Topic(
                        number=entry.number,
                        name=entry.name,
                        topic_id=entry.topic_id,
                        partition_count=entry.partition_count,
                        configs=entry.configs,
                        parsed=topic_configs.parse(entry.configs),
                        created_at_ms=entry.at_ms,
                    )
                )
            case TopicDeleted():
                return self._remove(entry)
            case PartitionsAdded():
                topic = self.known(entry.number)
                self._partition_count += entry.partition_count - topic.partition_count
                topic.partition_count = entry.partition_count
                return topic
            case ConfigsChanged():
                topic = self.known(entry.number)
                topic.parsed = topic_configs.parse(entry.configs)
                topic.configs = entry.configs
                return topic

    def _add(self, topic: Topic) -> Topic:
        self._next_number = topic.number + 1
        self._partition_count += topic.partition_count
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_number[topic.number] = topic
        self._by_collision[_collision_key(topic.name)] = topic
        return topic

    def known(self, number: int) -> Topic:
        """The topic with this number; ValueError if there is none."""
        topic = self._by_number.get(number)
        if topic is None:
            raise ValueError(f"no topic has number {number}")
        return topic

    def _remove(self, entry: TopicDeleted) -> Topic:
        topic = self.known(entry.number)
        del self._by_number[topic.number]
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        del self._by_collision[_collision_key(topic.name)]
        self._partition_count -= topic.partition_count
        self._deleted[topic.name] = _later(
            self._deleted.pop(topic.name, _NEVER), _Deletion(entry.id_blocks, entry.at_ms)
        )
        self._fold()
        return topic

    # Deleted names

    def lenient_blocks(self, name: str) -> int:
        """Producer ids from blocks up to this number may have had state in a deleted topic of this name, so any first
        number is accepted.
        """
        deletion = self._deleted.get(name, _NEVER)
        return max(deletion.id_blocks, self._floor.id_blocks)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget deletions that are older than the expiry of producers. No entry says so: a restart may bring them
        back.
        """
        self._deleted = {
            name: deletion for name, deletion in self._deleted.items() if now_ms - deletion.at_ms < expiration_ms
        }
        if now_ms - self._floor.at_ms >= expiration_ms:
            self._floor = _NEVER

    def _fold(self) -> None:
        while len(self._deleted) > self._deleted_names_max:
            oldest = next(iter(self._deleted))
            self._floor = _later(self._floor, self._deleted.pop(oldest))

    # Checkpoints

    def snapshot(self) -> dict[str, Any]:
        """The whole state, as values that JSON can hold."""
        return {
            "next_number": self._next_number,
            "topics": [
                {
                    "number": topic.number,
                    "name": topic.name,
                    "topic_id": topic.topic_id.hex(),
                    "partition_count": topic.partition_count,
                    "configs": dict(topic.configs),
                    "created_at_ms": topic.created_at_ms,
                }
                for topic in self
            ],
            "deleted": [
                {"name": name, "id_blocks": deletion.id_blocks, "at_ms": deletion.at_ms}
                for name, deletion in self._deleted.items()
            ],
            "floor": {"id_blocks": self._floor.id_blocks, "at_ms": self._floor.at_ms},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Replace the state by the one in `snapshot`."""
        self._clear()
        for topic_fields in snapshot["topics"]:
            self._add(
                Topic(
                    number=topic_fields["number"],
                    name=topic_fields["name"],
                    topic_id=bytes.fromhex(topic_fields["topic_id"]),
                    partition_count=topic_fields["partition_count"],
                    configs=dict(topic_fields["configs"]),
                    parsed=topic_configs.parse(topic_fields["configs"]),
                    created_at_ms=topic_fields["created_at_ms"],
                )
            )
        self._next_number = snapshot["next_number"]
        for topic_fields in snapshot["deleted"]:
            self._deleted[topic_fields["name"]] = _Deletion(topic_fields["id_blocks"], topic_fields["at_ms"])
        self._floor = _Deletion(snapshot["floor"]["id_blocks"], snapshot["floor"]["at_ms"])
        self._fold()


def check_name(name: str) -> None:
    if not name:
        raise TopicRefused(INVALID_TOPIC_EXCEPTION, "a topic needs a name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise TopicRefused(
            INVALID_TOPIC_EXCEPTION, f"a topic's name has at most {NAME_CHARACTERS_MAX} characters, not {len(name)}"
        )
    if name in (".", ".."):
        raise TopicRefused(INVALID_TOPIC_EXCEPTION, f"a topic cannot be called '{name}'")
    if not _NAME.fullmatch(name):
        raise TopicRefused(
            INVALID_TOPIC_EXCEPTION, f"{name!r} is no name for a topic: letters, digits, '.', '_' and '-' are allowed"
        )


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _later(one: _Deletion, other: _Deletion) -> _Deletion:
    """Both deletions as one that is at least as lenient and lasts at least as long as either."""
    return _Deletion(max(one.id_blocks, other.id_blocks), max(one.at_ms, other.at_ms))
