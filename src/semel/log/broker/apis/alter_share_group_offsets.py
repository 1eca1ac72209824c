"""AlterShareGroupOffsets (91), version 0: moves the start of share partitions of a group without members. What was
delivered or done after it is forgotten.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP, READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import ShareStart
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.refusals import INVALID_GROUP_ID, INVALID_REQUEST, Refused
from semel.wire.steps import Steps
from semel.wire.versions import ALTER_SHARE_GROUP_OFFSETS

API: Final = Api(ALTER_SHARE_GROUP_OFFSETS, (0, 0), rights=(READ_GROUP, READ_TOPIC), standby=Here.NOT_COORDINATOR)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.alter_share_group_offsets.AlterShareGroupOffsetsRequest
) -> Steps[kafka.alter_share_group_offsets.AlterShareGroupOffsetsResponse]:
    api = kafka.alter_share_group_offsets
    outcome = yield from attempted_in_steps(_alter(broker, exchange, request))
    return api.AlterShareGroupOffsetsResponse(
        error_code=error_of(outcome),
        error_message=message_of(outcome),
        responses=() if isinstance(outcome, Refused) else outcome,
    )


def _alter(
    broker: Serving, exchange: Exchange, request: kafka.alter_share_group_offsets.AlterShareGroupOffsetsRequest
) -> Steps[list[kafka.alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic]]:
    api = kafka.alter_share_group_offsets
    broker.guard.check(exchange, READ_GROUP, request.group_id)
    if not request.group_id:
        raise Refused(INVALID_GROUP_ID, "a group needs a name")
    starts, responses = [], []
    for topic in request.topics:
        partitions = []
        topic_id = NO_ID
        for item in topic.partitions:
            error, message = ErrorCode.NONE, None
            try:
                broker.guard.check(exchange, READ_TOPIC, topic.topic_name)
                known, _ = partition_of(broker, topic.topic_name, item.partition_index)
                if item.start_offset < 0:
                    raise Refused(INVALID_REQUEST, f"{item.start_offset} is no offset")
                topic_id = known.topic_id
                starts.append(ShareStart(known.number, item.partition_index, item.start_offset))
            except Refused as refused:
                error, message = ErrorCode(refused.error), refused.message
            partitions.append(
                api.AlterShareGroupOffsetsResponsePartition(
                    partition_index=item.partition_index, error_code=error, error_message=message
                )
            )
            yield 2
        responses.append(
            api.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions
            )
        )
    yield from broker.share_groups.set_starts(request.group_id, starts, exchange.address, may_create=True)
    broker.guard.note_administration(exchange, "share_offsets_altered", request.group_id)
    return responses
