"""DeleteShareGroupOffsets (92), version 0: forgets the share partitions of topics, in a group without members. The
next member that fetches from them begins where the group is set to begin.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DELETE_GROUP, READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import ShareStart
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.refusals import INVALID_GROUP_ID, Refused
from semel.wire.steps import Steps
from semel.wire.versions import DELETE_SHARE_GROUP_OFFSETS

API: Final = Api(DELETE_SHARE_GROUP_OFFSETS, (0, 0), rights=(DELETE_GROUP, READ_TOPIC), standby=Here.NOT_COORDINATOR)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.delete_share_group_offsets.DeleteShareGroupOffsetsRequest
) -> Steps[kafka.delete_share_group_offsets.DeleteShareGroupOffsetsResponse]:
    api = kafka.delete_share_group_offsets
    outcome = yield from attempted_in_steps(_delete(broker, exchange, request))
    return api.DeleteShareGroupOffsetsResponse(
        error_code=error_of(outcome),
        error_message=message_of(outcome),
        responses=() if isinstance(outcome, Refused) else outcome,
    )


def _delete(
    broker: Serving, exchange: Exchange, request: kafka.delete_share_group_offsets.DeleteShareGroupOffsetsRequest
) -> Steps[list[kafka.delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic]]:
    api = kafka.delete_share_group_offsets
    broker.guard.check(exchange, DELETE_GROUP, request.group_id)
    if not request.group_id:
        raise Refused(INVALID_GROUP_ID, "a group needs a name")
    machine = broker.share_groups.existing(request.group_id)
    starts, responses = [], []
    for one in request.topics:
        error, message, topic_id = ErrorCode.NONE, None, NO_ID
        try:
            broker.guard.check(exchange, READ_TOPIC, one.topic_name)
            topic = broker.log.state.catalog.existing(one.topic_name)
            topic_id = topic.topic_id
            indexes = machine.indexes_of(topic.number)
            if not indexes:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group has not read this topic")
            starts += [ShareStart(topic.number, index, -1) for index in indexes]
            yield 1 + len(indexes)
        except Refused as refused:
            error, message = ErrorCode(refused.error), refused.message
        responses.append(
            api.DeleteShareGroupOffsetsResponseTopic(
                topic_name=one.topic_name, topic_id=topic_id, error_code=error, error_message=message
            )
        )
        yield 2
    yield from broker.share_groups.set_starts(request.group_id, starts, exchange.address, may_create=False)
    broker.guard.note_administration(exchange, "share_offsets_deleted", request.group_id)
    return responses
