"""ShareAcknowledge (79), versions 1 and 2: a share consumer accepts, releases or rejects records that it holds, or
renews their locks.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.apis.share_acknowledgements import acknowledged, by_topic
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP, READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, SharerName, check_member_id
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import INVALID_REQUEST, Refused
from semel.wire.steps import Steps
from semel.wire.versions import SHARE_ACKNOWLEDGE

API: Final = Api(SHARE_ACKNOWLEDGE, (1, 2), rights=(READ_GROUP, READ_TOPIC), standby=Here.NOT_LEADER)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.share_acknowledge.ShareAcknowledgeRequest
) -> Steps[kafka.share_acknowledge.ShareAcknowledgeResponse]:
    api = kafka.share_acknowledge
    outcomes = yield from attempted_in_steps(_acknowledge(broker, exchange, request))
    if isinstance(outcomes, Refused):
        return api.ShareAcknowledgeResponse(
            error_code=outcomes.error, error_message=outcomes.message, responses=(), node_endpoints=()
        )
    topics = []
    for topic_id, indexes in (yield from by_topic(outcomes)).items():
        partitions = [
            api.PartitionData(
                partition_index=index,
                error_code=error_of(outcomes[topic_id, index]),
                error_message=message_of(outcomes[topic_id, index]),
                current_leader=api.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
            for index in indexes
        ]
        topics.append(api.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions))
        yield 1 + len(indexes)
    return api.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.share_groups.share_rules_of(request.group_id or "").lock_ms,
        responses=topics,
        node_endpoints=(),
    )


def _acknowledge(
    broker: Serving, exchange: Exchange, request: kafka.share_acknowledge.ShareAcknowledgeRequest
) -> Steps[dict[Place, Refused | None]]:
    if request.group_id is None:
        raise Refused(INVALID_REQUEST, "a group needs a name")
    broker.guard.check(exchange, READ_GROUP, request.group_id)
    who = SharerName(request.group_id, check_member_id(request.member_id))
    if request.share_session_epoch == INITIAL_EPOCH:
        raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "only ShareFetch begins a session")
    session = broker.share_groups.sessions.next(who, exchange.principal, request.share_session_epoch)
    outcomes = yield from acknowledged(broker, exchange, session, request.topics, renews=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        yield from broker.share_groups.end_session(session)
    return outcomes
