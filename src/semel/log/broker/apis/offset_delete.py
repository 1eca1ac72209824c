"""OffsetDelete (47), version 0: deletes a group's committed offsets in some partitions.

Offsets in a topic to which a member subscribes are kept: without them the next member would read the whole topic again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, attempted_in_steps, error_of
from semel.log.broker.apis.offset_commits import commit
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DELETE_GROUP, READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import OFFSET_DELETE

API: Final = Api(OFFSET_DELETE, (0, 0), rights=(DELETE_GROUP, READ_TOPIC), standby=Here.NOT_COORDINATOR)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.offset_delete.OffsetDeleteRequest
) -> Steps[kafka.offset_delete.OffsetDeleteResponse]:
    topics = yield from attempted_in_steps(_forget(broker, exchange, request))
    return kafka.offset_delete.OffsetDeleteResponse(
        error_code=error_of(topics), topics=() if isinstance(topics, Refused) else topics
    )


def _forget(
    broker: Serving, exchange: Exchange, request: kafka.offset_delete.OffsetDeleteRequest
) -> Steps[list[kafka.offset_delete.OffsetDeleteResponseTopic]]:
    broker.guard.check(exchange, DELETE_GROUP, request.group_id)
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "the group needs a name")
    broker.log.state.groups.existing(request.group_id).check_forget()
    topics = []
    for item in request.topics:
        topic = yield from _forget_topic(broker, exchange, request.group_id, item)
        topics.append(topic)
    return topics


def _forget_topic(
    broker: Serving, exchange: Exchange, group_id: str, item: kafka.offset_delete.OffsetDeleteRequestTopic
) -> Steps[kafka.offset_delete.OffsetDeleteResponseTopic]:
    refusal = broker.guard.error(exchange, READ_TOPIC, item.name)
    if refusal:
        yield APPEND_PIECES + len(item.partitions)
        return _topic(item.name, dict.fromkeys((one.partition_index for one in item.partitions), refusal))
    topic = broker.log.state.catalog.named(item.name)
    count = 0 if topic is None else topic.partition_count
    number = -1 if topic is None else topic.number
    indexes = dict.fromkeys(one.partition_index for one in item.partitions)
    names = [PartitionName(number, index) for index in indexes if 0 <= index < count]
    errors: dict[int, int] = dict.fromkeys(indexes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    while names:
        group = broker.log.state.groups.named(group_id)
        count = len(names) if group is None else group.at_once(names)
        error = error_of(attempted(_forget_partitions, broker, exchange, group_id, item.name, names[:count]))
        if error:
            # It is the answer for all partitions that are left.
            count = len(names)
        errors.update(dict.fromkeys([name.partition for name in names[:count]], error))
        names = names[count:]
        yield APPEND_PIECES + count
    yield len(item.partitions)
    return _topic(item.name, errors)


def _topic(name: str, errors: Mapping[int, int]) -> kafka.offset_delete.OffsetDeleteResponseTopic:
    partition = kafka.offset_delete.OffsetDeleteResponsePartition
    return kafka.offset_delete.OffsetDeleteResponseTopic(
        name=name,
        partitions=[partition(partition_index=index, error_code=error) for index, error in errors.items()],
    )


def _forget_partitions(
    broker: Serving, exchange: Exchange, group_id: str, topic_name: str, partitions: list[PartitionName]
) -> None:
    group = broker.log.state.groups.existing(group_id)
    group.check_forget()
    entry = group.decide_forget(topic_name, partitions)
    if entry is not None:
        commit(broker, entry)
        count = len(entry.partitions)
        broker.guard.note_administration(exchange, "offsets_deleted", group_id, topic=topic_name, partitions=count)
