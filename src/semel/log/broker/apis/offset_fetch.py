"""OffsetFetch (9), versions 1 to 10: the offsets that groups have committed.

A request names partitions by topic name, since version 10 by topic id, or no partitions, which means all. A group that
does not exist is no error: its offsets are -1. A client that asks for stable offsets is told to retry while an open
transaction may still change the group's offsets. A partition that is named twice is answered once.
"""

from collections.abc import Iterable
from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName
from semel.log.core.groups.offsets import OffsetsView
from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps, each
from semel.wire.versions import OFFSET_FETCH

API: Final = Api(OFFSET_FETCH, (1, 10), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR)

# Before this version an answer has errors of partitions only.
_GROUP_ERROR_FROM: Final = 2
_NOTHING: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    stable = getattr(request, "require_stable", False)
    if not hasattr(request, "groups"):
        return (yield from _of_group(broker, exchange, request, stable))
    groups = []
    for item in {item.group_id: item for item in request.groups}.values():
        groups.append((yield from _of_group(broker, exchange, item, stable)))
        yield 1
    return {"groups": groups}


def _of_group(broker: Serving, exchange: Exchange, item: Any, stable: bool) -> Steps[Fields]:
    outcome = yield from attempted_in_steps(_look_up(broker, exchange, item, stable))
    return {"group_id": item.group_id, "topics": [], **outcome}


def _look_up(broker: Serving, exchange: Exchange, item: Any, stable: bool) -> Steps[Fields]:
    refusal = broker.guard.error(exchange, DESCRIBE_GROUP, item.group_id)
    if refusal and exchange.version >= _GROUP_ERROR_FROM:
        raise Refused(refusal, f"group '{item.group_id}' may not be read by this client")
    group = broker.log.state.groups.named(item.group_id)
    if group is not None:
        # Only versions from 9 on name the member that sends the request.
        group.check_fetch(getattr(item, "member_id", None), getattr(item, "member_epoch", -1))
    # All offsets are of one moment; otherwise the answer could show half of a transaction that ends meanwhile.
    view = None if group is None else group.offsets.view(with_pending=stable)
    if item.topics is None:
        return {"topics": [] if view is None else (yield from _all_topics(broker, exchange, view))}
    indexes_by_handle: dict[str | bytes, dict[int, None]] = {}
    for topic in item.topics:
        handle = topic.name if hasattr(topic, "name") else messages.topic_id_bytes(topic.topic_id)
        indexes_by_handle.setdefault(handle, {}).update(dict.fromkeys(topic.partition_indexes))
        yield 1
    topics = []
    for handle, indexes in indexes_by_handle.items():
        topics.append((yield from _asked_topic(broker, exchange, view, handle, indexes, refusal)))
        yield 1
    return {"topics": topics}


def _all_topics(broker: Serving, exchange: Exchange, view: OffsetsView) -> Steps[list[Fields]]:
    topics: list[Fields] = []
    for number, offsets in view.committed.items():
        topic = broker.log.state.catalog.numbered(number)
        if topic is not None and broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name):
            partitions = yield from _partitions(view, number, offsets)
            topics.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions})
        yield 1
    return topics


def _asked_topic(
    broker: Serving,
    exchange: Exchange,
    view: OffsetsView | None,
    handle: str | bytes,
    indexes: Iterable[int],
    refusal: int,
) -> Steps[Fields]:
    catalog = broker.log.state.catalog
    by_id = isinstance(handle, bytes)
    topic = catalog.identified(handle) if isinstance(handle, bytes) else catalog.named(handle)
    name = handle if isinstance(handle, str) else None if topic is None else topic.name
    if not refusal and name is not None:
        refusal = broker.guard.error(exchange, DESCRIBE_TOPIC, name)
    partitions: list[Fields]
    if refusal:
        partitions = yield from each(indexes, lambda index: _unknown(index, refusal))
    elif topic is None or view is None:
        # A topic with this name may still be created, but never one with this id.
        error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None and by_id else ErrorCode.NONE
        partitions = yield from each(indexes, lambda index: _unknown(index, error))
    else:
        partitions = yield from _partitions(view, topic.number, indexes)
    return {"name": handle, "topic_id": handle, "partitions": partitions}


def _unknown(index: int, error: int) -> Fields:
    return {"partition_index": index, "error_code": error, **_NOTHING}


def _partitions(view: OffsetsView, number: int, indexes: Iterable[int]) -> Steps[list[Fields]]:
    partitions: list[Fields] = []
    for index in indexes:
        name = PartitionName(number, index)
        partitions.append({"partition_index": index, **_committed(view, name)})
        yield 1
    return partitions


def _committed(view: OffsetsView, name: PartitionName) -> Fields:
    if view.is_pending(name):
        return {"error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT, **_NOTHING}
    offset = view.committed.get(name.number, {}).get(name.partition)
    if offset is None:
        return _NOTHING
    return {
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
    }
