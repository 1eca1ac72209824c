"""SyncGroup (14), versions 0 to 5: the leader sends the assignments, and each member gets its own.

The answer is sent when the leader has assigned and the generation is durable. Otherwise a member could begin to read
partitions that belong to another member after a power failure.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer, answer_in_steps, decoded
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP
from semel.log.broker.serving import Serving
from semel.log.core.groups.classic_steps import SyncAnswer, SyncRequest
from semel.wire import kafka
from semel.wire.steps import Steps
from semel.wire.versions import SYNC_GROUP

API: Final = Api(SYNC_GROUP, (0, 5), rights=(READ_GROUP,), standby=Here.NOT_COORDINATOR)

_PROTOCOL_FROM = 5


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    message = yield from decoded(exchange, kafka.sync_group.SyncGroupRequest, body)
    refusal = broker.guard.error(exchange, READ_GROUP, message.group_id)
    if refusal:
        answer(exchange, _response_of(SyncAnswer(refusal)))
        return
    request = SyncRequest(
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        generation=message.generation_id,
        protocol_type=_named(exchange.version, message.protocol_type),
        protocol=_named(exchange.version, message.protocol_name),
        assignments={share.member_id: share.assignment for share in message.assignments},
    )

    def reply(outcome: SyncAnswer) -> Steps[None]:
        # This answer may be the first that shows a generation, which must be durable before.
        return answer_in_steps(exchange, _response_of(outcome), after=broker.log.end)

    broker.groups.sync(exchange, message.group_id, request, reply)


def _named(version: int, name: str | None) -> str | None:
    """The protocol that the member names. An empty one, in versions with the field, matches none."""
    return name or "" if version >= _PROTOCOL_FROM else None


def _response_of(outcome: SyncAnswer) -> kafka.sync_group.SyncGroupResponse:
    return kafka.sync_group.SyncGroupResponse(
        error_code=outcome.error,
        protocol_type=outcome.protocol_type,
        protocol_name=outcome.protocol,
        assignment=outcome.assignment,
    )
