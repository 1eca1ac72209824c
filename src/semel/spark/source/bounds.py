"""Where a query begins and where a batch read ends, as the options say: an edge, offsets, or times. Pure.

Only this file parses these options; other files ask the brokers for the offsets that they stand for.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from semel.client.places import EARLIEST, LATEST, Edge, TopicPartition
from semel.spark.source.errors import OptionRefused

_OFFSETS_LOOK_LIKE: Final = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
_TIMESTAMPS_LOOK_LIKE: Final = '{"topicA": {"0": 1700000000000, "1": 1700000000000}}'
_PARTITIONS_LOOK_LIKE: Final = '{"topicA": [0, 1], "topicB": [2]}'

_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class AtEdge:
    """The same end of every partition."""

    edge: Edge


@dataclass(frozen=True)
class AtOffsets:
    """For each partition an offset, or the beginning or the end of the partition."""

    positions: Mapping[TopicPartition, Edge | int]


@dataclass(frozen=True)
class AtTimestamps:
    """For each partition its own time in ms: the bound is the first record of that time or later."""

    timestamps_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimestamp:
    """One time in ms for all partitions: the bound is the first record of that time or later."""

    timestamp_ms: int


Bound = AtEdge | AtOffsets | AtTimestamps | AtTimestamp


def read_offsets(option: str, text: str) -> AtEdge | AtOffsets:
    """`earliest`, `latest`, or JSON in which -2 stands for earliest and -1 for latest."""
    word = text.strip().upper()
    if word in Edge.__members__:
        return AtEdge(Edge[word])
    positions = _by_partition(option, text, f"earliest, latest, or {_OFFSETS_LOOK_LIKE}")
    return AtOffsets({place: _position(option, place, number) for place, number in positions.items()})


def read_timestamps(option: str, text: str) -> AtTimestamps:
    timestamps = _by_partition(option, text, _TIMESTAMPS_LOOK_LIKE)
    for place, timestamp_ms in timestamps.items():
        if timestamp_ms < 0:
            raise OptionRefused(f"option {option}: {timestamp_ms} for {place} is before 1970")
    return AtTimestamps(timestamps)


def read_timestamp(option: str, text: str) -> AtTimestamp:
    if not text.strip().isdecimal():
        raise OptionRefused(f"option {option}: {text!r} is not a time in milliseconds since 1970")
    return AtTimestamp(int(text))


def read_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """The partitions that option `assign` names."""

    def numbers(part: Any) -> list[int]:
        return [_whole(number) for number in _checked(part, list)]

    named = _by_topic(option, text, numbers, _PARTITIONS_LOOK_LIKE)
    partitions = frozenset(TopicPartition(topic, number) for topic, part in named.items() for number in part)
    if not partitions or any(place.partition < 0 for place in partitions):
        raise OptionRefused(f"option {option}: {text!r} should look like {_PARTITIONS_LOOK_LIKE}")
    return partitions


def _position(option: str, place: TopicPartition, number: int) -> Edge | int:
    if number >= 0:
        return number
    if number in (EARLIEST.value, LATEST.value):
        return Edge(number)
    raise OptionRefused(f"option {option}: {number} for {place} is neither an offset nor -2 (earliest) nor -1 (latest)")


def _by_partition(option: str, text: str, expected: str) -> dict[TopicPartition, int]:
    def numbers(part: Any) -> dict[int, int]:
        return {int(key): _whole(value) for key, value in _checked(part, dict).items()}

    named = _by_topic(option, text, numbers, expected)
    return {TopicPartition(topic, number): value for topic, part in named.items() for number, value in part.items()}


def _by_topic(option: str, text: str, read: Callable[[Any], _Entry], expected: str) -> dict[str, _Entry]:
    try:
        return {topic: read(part) for topic, part in _checked(json.loads(text), dict).items()}
    except ValueError:
        raise OptionRefused(f"option {option}: {text!r} should look like {expected}") from None


def _checked(part: Any, kind: type) -> Any:
    if not isinstance(part, kind):
        raise ValueError(part)
    return part


def _whole(part: Any) -> int:
    if not isinstance(part, int) or isinstance(part, bool):
        raise ValueError(part)
    return part
