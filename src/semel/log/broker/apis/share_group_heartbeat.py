"""ShareGroupHeartbeat (76), version 1: joins a share group, stays in it, and leaves it.

One request does all three, as in groups of the new protocol. A member is told in which partitions it should look for
records; it may share them with others.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, attempted_in_steps, decoded
from semel.log.broker.apis.lookup import identified
from semel.log.broker.assigned_groups import HeartbeatAnswer
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TOPIC, READ_GROUP
from semel.log.broker.serving import Serving
from semel.log.broker.share_sessions import check_member_id
from semel.log.core.groups.consumer_members import AWAY_EPOCH, JOIN_EPOCH
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.partitions import NOTHING
from semel.wire import kafka
from semel.wire.refusals import INVALID_REQUEST, Refused
from semel.wire.steps import Steps
from semel.wire.versions import SHARE_GROUP_HEARTBEAT

API: Final = Api(
    SHARE_GROUP_HEARTBEAT,
    (1, 1),
    rights=(READ_GROUP, DESCRIBE_TOPIC),
    standby=Here.NOT_COORDINATOR,
    is_heartbeat=True,
)


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    api = kafka.share_group_heartbeat
    request = yield from decoded(exchange, api.ShareGroupHeartbeatRequest, body)
    answer: HeartbeatAnswer | None = None

    def serve() -> Steps[kafka.share_group_heartbeat.ShareGroupHeartbeatResponse]:
        nonlocal answer
        broker.guard.check(exchange, READ_GROUP, request.group_id)
        check_member_id(request.member_id)
        for name in request.subscribed_topic_names or ():
            broker.guard.check(exchange, DESCRIBE_TOPIC, name)
        answer = yield from broker.share_groups.heartbeat(
            request.group_id, _heartbeat(exchange, request), exchange.address
        )
        broker.groups.note_heard(exchange, request.group_id, answer.member_id)
        return _response_of(broker, answer)

    response = yield from attempted_in_steps(serve())
    if isinstance(response, Refused):
        response = api.ShareGroupHeartbeatResponse(
            error_code=response.error, error_message=response.message, member_epoch=0, heartbeat_interval_ms=0
        )
    yield from answer_in_steps(exchange, response, after=broker.log.end if answer is None else answer.after)


def _heartbeat(exchange: Exchange, request: kafka.share_group_heartbeat.ShareGroupHeartbeatRequest) -> Heartbeat:
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise Refused(INVALID_REQUEST, "a member that joins must say which topics it wants")
    if request.member_epoch == AWAY_EPOCH:
        raise Refused(INVALID_REQUEST, "no member of a share group leaves for a while")
    return Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=exchange.client_id or "",
        client_host=f"/{exchange.client_host}",
        rack_id=request.rack_id,
        # It never has to give up a partition before another member gets it.
        rebalance_timeout_ms=0,
        topic_names=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        owned=NOTHING,
        principal=str(exchange.principal),
    )


def _response_of(broker: Serving, answer: HeartbeatAnswer) -> kafka.share_group_heartbeat.ShareGroupHeartbeatResponse:
    api = kafka.share_group_heartbeat
    topics = [
        api.TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in identified(broker, answer.may_read or NOTHING)
    ]
    return api.ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.may_read is None else api.Assignment(topic_partitions=topics),
    )
