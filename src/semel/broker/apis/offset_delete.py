"""OffsetDelete (47), version 0: a group forgets how far it came in some partitions.

Not in those of a topic that its members read, or the next of them to begin would read all of it again.
"""

from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered, attempted
from semel.broker.apis.committing import commit
from semel.core.entries import PartitionName
from semel.core.groups.groups import Group
from semel.core.refusals import Refused
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    return {"topics": [], **attempted(_forget, broker, request)}


def _forget(broker: "Broker", request: Any) -> Fields:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "the group needs a name")
    group = broker.log.groups.existing(request.group_id)
    group.check_forget()
    return {"topics": [_forget_topic(broker, group, asked) for asked in request.topics]}


def _forget_topic(broker: "Broker", group: Group, asked: Any) -> Fields:
    topic = broker.log.catalog.named(asked.name)
    count = 0 if topic is None else topic.partition_count
    number = -1 if topic is None else topic.number
    indexes = dict.fromkeys(one.partition_index for one in asked.partitions)
    known = [PartitionName(number, index) for index in indexes if 0 <= index < count]
    outcome = attempted(_forget_partitions, broker, group, asked.name, known) if known else {}
    error = outcome.get("error_code", ErrorCode.NONE)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "name": asked.name,
        "partitions": [
            {"partition_index": index, "error_code": error if 0 <= index < count else missing} for index in indexes
        ],
    }


def _forget_partitions(broker: "Broker", group: Group, topic_name: str, partitions: list[PartitionName]) -> Fields:
    entry = group.decide_forget(topic_name, partitions)
    if entry is not None:
        commit(broker, entry)
    return {}
