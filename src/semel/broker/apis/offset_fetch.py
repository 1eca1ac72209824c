"""OffsetFetch (9), versions 1 to 10: how far groups have come.

Partitions are asked for by name, since version 10 by the topic's id, or all of them, by asking for none. Nothing is
known of a group that does not exist, which is no error: its offsets are -1. Whoever asks for stable offsets is told to
ask again where an open transaction may still move the group. What is asked for twice is answered once.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from semel.broker.apis.answered import Fields, answered, attempted
from semel.core.entries import PartitionName
from semel.core.groups.groups import Group
from semel.core.groups.offsets import CommittedOffset
from semel.wire import messages
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange

_NOTHING: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    stable = getattr(request, "require_stable", False)
    if not hasattr(request, "groups"):
        return _of_group(broker, request, stable)
    wanted = {asked.group_id: asked for asked in request.groups}
    return {"groups": [_of_group(broker, asked, stable) for asked in wanted.values()]}


def _of_group(broker: "Broker", asked: Any, stable: bool) -> Fields:
    return {"group_id": asked.group_id, "topics": [], **attempted(_look_up, broker, asked, stable)}


def _look_up(broker: "Broker", asked: Any, stable: bool) -> Fields:
    group = broker.log.groups.named(asked.group_id)
    if group is not None:
        # Only versions from 9 on say who asks.
        group.check_fetch(getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1))
    if asked.topics is None:
        return {"topics": [] if group is None else _all_topics(broker, group, stable)}
    wanted: dict[str | bytes, dict[int, None]] = {}
    for topic in asked.topics:
        handle = topic.name if hasattr(topic, "name") else messages.topic_id_bytes(topic.topic_id)
        wanted.setdefault(handle, {}).update(dict.fromkeys(topic.partition_indexes))
    return {"topics": [_asked_topic(broker, group, handle, indexes, stable) for handle, indexes in wanted.items()]}


def _all_topics(broker: "Broker", group: Group, stable: bool) -> list[Fields]:
    committed = group.offsets.committed
    return [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": _partitions(group, topic.number, committed.of_topic(topic.number), stable),
        }
        for topic in map(broker.log.catalog.numbered, committed.topics)
        if topic is not None
    ]


def _asked_topic(
    broker: "Broker", group: Group | None, handle: str | bytes, indexes: Iterable[int], stable: bool
) -> Fields:
    catalog = broker.log.catalog
    by_id = isinstance(handle, bytes)
    topic = catalog.identified(handle) if isinstance(handle, bytes) else catalog.named(handle)
    partitions: list[Fields]
    if topic is None or group is None:
        # A name may yet come to be; an id that is not known never will.
        error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None and by_id else ErrorCode.NONE
        partitions = [{"partition_index": index, "error_code": error, **_NOTHING} for index in indexes]
    else:
        committed = group.offsets.committed.of_topic(topic.number)
        partitions = _partitions(group, topic.number, {index: committed.get(index) for index in indexes}, stable)
    return {"name": handle, "topic_id": handle, "partitions": partitions}


def _partitions(group: Group, number: int, offsets: Mapping[int, CommittedOffset | None], stable: bool) -> list[Fields]:
    return [
        {"partition_index": index, **_committed(group, PartitionName(number, index), offset, stable)}
        for index, offset in offsets.items()
    ]


def _committed(group: Group, name: PartitionName, offset: CommittedOffset | None, stable: bool) -> Fields:
    if stable and group.offsets.is_pending(name):
        return {"error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT, **_NOTHING}
    if offset is None:
        return _NOTHING
    return {
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
    }
