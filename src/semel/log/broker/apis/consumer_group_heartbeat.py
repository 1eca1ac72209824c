"""ConsumerGroupHeartbeat (68), versions 0 and 1: joins a group of the new protocol, stays in it, and leaves it.

One request does all three: the member says its epoch and what it reads, and is told which partitions it should have. In
version 0 the broker makes up the member's id, from version 1 on the client does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from semel.log.broker.apis.answers import answer_in_steps, attempted_in_steps, decoded
from semel.log.broker.apis.lookup import identified
from semel.log.broker.assigned_groups import HeartbeatAnswer
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TOPIC, READ_GROUP
from semel.log.broker.serving import Serving
from semel.log.core.groups.consumer_members import JOIN_EPOCH
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT

API: Final = Api(
    CONSUMER_GROUP_HEARTBEAT,
    (0, 1),
    rights=(READ_GROUP, DESCRIBE_TOPIC),
    standby=Here.NOT_COORDINATOR,
    is_heartbeat=True,
)

_UNKNOWN = Partitions.of_indexes(-1, (0,), 1)


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, body)
    answer: HeartbeatAnswer | None = None

    def serve() -> Steps[kafka.consumer_group_heartbeat.ConsumerGroupHeartbeatResponse]:
        nonlocal answer
        broker.guard.check(exchange, READ_GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            broker.guard.check(exchange, DESCRIBE_TOPIC, name)
        beat = yield from _heartbeat(broker, exchange, request)
        answer = yield from broker.consumer_groups.heartbeat(request.group_id, beat, exchange.address)
        broker.groups.note_heard(exchange, request.group_id, answer.member_id)
        return _response_of(broker, answer)

    response = yield from attempted_in_steps(serve())
    if isinstance(response, Refused):
        response = kafka.consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            error_code=response.error, error_message=response.message, member_epoch=0, heartbeat_interval_ms=0
        )
    yield from answer_in_steps(exchange, response, after=broker.log.end if answer is None else answer.after)


def _heartbeat(
    broker: Serving, exchange: Exchange, request: kafka.consumer_group_heartbeat.ConsumerGroupHeartbeatRequest
) -> Steps[Heartbeat]:
    member_id = request.member_id
    if exchange.version == 0 and not member_id and request.member_epoch == JOIN_EPOCH:
        member_id = str(uuid4())
    owned = yield from _owned(broker, request.topic_partitions)
    return Heartbeat(
        member_id=member_id,
        epoch=request.member_epoch,
        client_id=exchange.client_id or "",
        client_host=f"/{exchange.client_host}",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        topic_regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        principal=str(exchange.principal),
    )


def _owned(
    broker: Serving, topics: Sequence[kafka.consumer_group_heartbeat.RequestTopicPartitions] | None
) -> Steps[Partitions | None]:
    """The partitions that the member says it owns. One that does not exist becomes a partition of no topic."""
    if topics is None:
        return None
    owned: dict[int, list[int]] = {}
    counts = {}
    is_all_known = True
    for entry in topics:
        topic = broker.log.state.catalog.identified(entry.topic_id)
        yield 1 + len(entry.partitions)
        if topic is None or not all(0 <= index < topic.partition_count for index in entry.partitions):
            is_all_known = False
        if topic is not None:
            counts[topic.number] = topic.partition_count
            owned.setdefault(topic.number, []).extend(entry.partitions)
    existing = Partitions.union(Partitions.of_indexes(number, owned[number], count) for number, count in counts.items())
    return existing if is_all_known else existing | _UNKNOWN


def _response_of(
    broker: Serving, answer: HeartbeatAnswer
) -> kafka.consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
    api = kafka.consumer_group_heartbeat
    topics = [
        api.ResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in identified(broker, answer.may_read or NOTHING)
    ]
    return api.ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.may_read is None else api.Assignment(topic_partitions=topics),
    )
