"""The topics of a move, in the source and in the target. While records are copied, the target's topics have no
retention and no compaction, and accept any timestamp and any size. They get the source's configurations when all
records are copied and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from semel.client import (
    EARLIEST,
    LATEST,
    Isolation,
    LogClient,
    RefusedByBroker,
    Slice,
    Topic,
    TopicPartition,
    UnknownTopic,
    admin,
)
from semel.client.patience import Moved, Patience
from semel.client.topics import partitions_of
from semel.ui.transfer.pieces import pieces
from semel.ui.transfer.progress import PREFIX, TOPIC_CONFIGS, MoveRefused, Progress
from semel.wire import kafka
from semel.wire.errors import ErrorCode

_NEVER: Final = str((1 << 63) - 1)
# The values of these configurations during a move, if the target knows them.
_MEANWHILE: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _NEVER,
    "message.timestamp.after.max.ms": _NEVER,
    # The source may have accepted larger batches before than it does now. In Kafka a batch also has to fit into a
    # segment.
    "max.message.bytes": str((1 << 31) - 1),
    "segment.bytes": str(1 << 30),
}
# Kafka's number for the source of a value that is set on the topic itself.
_SET_FOR_TOPIC: Final = 1


class Original(NamedTuple):
    """A topic of the source, the configurations that are set on it, and the effective ones."""

    topic: Topic
    configs: Mapping[str, str]
    effective: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.effective.get("cleanup.policy", "")


def originals(source: LogClient) -> dict[str, Original]:
    """The topics to move."""
    by_name = {}
    for name, topic in source.patiently(source.cluster.every_topic).items():
        try:
            configs = source.patiently(partial(admin.configs_of, source.cluster, name, None))
        except UnknownTopic:
            # It was deleted a moment ago.
            continue
        original = Original(topic, _set_in(configs), {one.name: one.value or "" for one in configs})
        if not _is_progress(original):
            by_name[name] = original
    return by_name


def _is_progress(original: Original) -> bool:
    """Whether this is the progress of a move into the source."""
    topic = original.topic
    return topic.name.startswith(PREFIX) and topic.partitions == 1 and original.is_compacted


def _set_in(configs: Iterable[Any]) -> dict[str, str]:
    return {one.name: one.value or "" for one in configs if one.config_source == _SET_FOR_TOPIC}


def progress_topic(target: LogClient, name: str) -> Topic:
    """The topic of the progress; it is created if it does not exist."""
    if name not in target.topics([name]):
        _make(target, name, 1, TOPIC_CONFIGS)
    topic = _await(target, name, 1)
    if target.config_of(name, "cleanup.policy") != TOPIC_CONFIGS["cleanup.policy"]:
        raise MoveRefused(f"topic {name!r} of the target would forget how far the move is: set cleanup.policy=compact")
    return topic


def prepare(target: LogClient, sources: Mapping[str, Original], progress: Progress) -> None:
    """Create the missing topics in the target, and set all of them to keep every record."""
    known_to_target = _known_to(target, progress)
    there = target.topics(sources)
    known = {where.topic for where in progress.reached}
    for name, original in sources.items():
        count = original.topic.partitions
        if name not in there:
            if name in known:
                raise deleted(name, progress)
            configs = {config: value for config, value in original.configs.items() if config in known_to_target}
            _make(target, name, count, configs)
            there[name] = _await(target, name, count)
        elif name not in known:
            _check_empty(target, there[name])
        if there[name].partitions < count:
            _unless_done(target, partial(admin.grow_topic, target.cluster, name, count), ErrorCode.INVALID_PARTITIONS)
            there[name] = _await(target, name, count)
        if there[name].partitions > count:
            raise MoveRefused(
                f"topic {name!r} has {there[name].partitions} partitions in the target and {count} in the source"
            )
    meanwhile = {name: value for name, value in _MEANWHILE.items() if name in known_to_target}
    _alter(target, dict.fromkeys(sources, meanwhile))


def settle(target: LogClient, sources: Mapping[str, Original], progress: Progress) -> dict[str, list[str]]:
    """Set the source's configurations on the target's topics. Returns for each topic those that the target does not
    know.
    """
    known_to_target = _known_to(target, progress)
    changes = {
        topic: {
            name: original.configs.get(name)
            for name in dict.fromkeys((*_MEANWHILE, *original.configs))
            if name in known_to_target
        }
        for topic, original in sources.items()
    }
    _alter(target, changes)
    unknown = {topic: sorted(original.configs.keys() - known_to_target) for topic, original in sources.items()}
    return {topic: names for topic, names in unknown.items() if names}


def _known_to(target: LogClient, progress: Progress) -> set[str]:
    """The configurations of topics that the target knows: it lists all of them for any topic."""
    return {one.name for one in _configs_of(target, progress.topic.name)}


def deleted(name: str, progress: Progress) -> MoveRefused:
    """A topic is gone from the target."""
    anew = f"delete what was moved of it and topic {progress.topic.name!r} there, and start again"
    return MoveRefused(f"topic {name!r} was deleted in the target while it was moved: {anew}")


def _check_empty(target: LogClient, topic: Topic) -> None:
    """Refuse a topic with committed records. A move that was killed early may have left aborted ones."""
    for where, end in target.offsets(partitions_of(topic), LATEST, Isolation.READ_COMMITTED).items():
        start = target.offsets([where], EARLIEST, Isolation.READ_COMMITTED)[where]
        if any(True for _ in pieces(target, Slice(topic, where.partition, start, end), may_lack_its_end=True)):
            raise MoveRefused(f"topic {topic.name!r} of the target has records already, and no move has put them there")


def _configs_of(target: LogClient, topic: str) -> list[kafka.describe_configs.DescribeConfigsResourceResult]:
    return target.patiently(lambda: admin.configs_of(target.cluster, topic, None))


def _alter(target: LogClient, changes: Mapping[str, Mapping[str, str | None]]) -> None:
    if changes:
        target.patiently(lambda: admin.alter_configs(target.cluster, changes))


def _make(target: LogClient, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    create = partial(admin.create_topic, target.cluster, name, partitions, configs)
    _unless_done(target, create, ErrorCode.TOPIC_ALREADY_EXISTS)


def _unless_done(target: LogClient, change: partial[Any], done: ErrorCode) -> None:
    """Make a change, and repeat it if needed; if the answer was lost, it may have been made already."""
    try:
        target.patiently(change)
    except RefusedByBroker as error:
        if error.code != done:
            raise


def _await(target: LogClient, name: str, partitions: int) -> Topic:
    """The topic, when the target serves all of its partitions."""
    patience = Patience(target.settings)
    while True:
        topic = target.topics([name]).get(name)
        if topic is not None and topic.partitions >= partitions:
            target.offsets([TopicPartition(name, number) for number in range(partitions)], LATEST, Isolation(0))
            patience.end()
            return topic
        patience.wait(Moved(f"topic {name!r} is being made") if topic else UnknownTopic(f"there is no topic {name!r}"))
