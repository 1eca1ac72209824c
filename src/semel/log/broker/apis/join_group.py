"""JoinGroup (11), versions 0 to 9: makes a client a member of a group, or keeps it one when the members change.

The answer comes when all members have joined, or after the longest rebalance timeout of all members. From version 4 on
a new member first gets only its id, and joins with it: otherwise, after a lost answer, a member that no client uses
would stay in the group.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer, answer_in_steps, decoded
from semel.log.broker.classic_groups import new_member_id
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP
from semel.log.broker.serving import Serving
from semel.log.core.groups.classic_steps import JoinAnswer, JoinRequest
from semel.wire import kafka
from semel.wire.refusals import INCONSISTENT_GROUP_PROTOCOL
from semel.wire.steps import Steps
from semel.wire.versions import JOIN_GROUP

API: Final = Api(JOIN_GROUP, (0, 9), rights=(READ_GROUP,), standby=Here.NOT_COORDINATOR)

# How many assignors a member may name: all are compared whenever a member joins. Clients name about five.
PROTOCOLS_MAX: Final = 100

_KNOWN_ID_FROM = 4
_NO_PROTOCOL_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    message = yield from decoded(exchange, kafka.join_group.JoinGroupRequest, body)
    version = exchange.version
    client_id = exchange.client_id or ""
    instance_id = message.group_instance_id
    refusal = broker.guard.error(exchange, READ_GROUP, message.group_id)
    if refusal:
        answer(exchange, _response_of(JoinAnswer(refusal, ""), version))
        return
    if len(message.protocols) > PROTOCOLS_MAX:
        answer(exchange, _response_of(JoinAnswer(INCONSISTENT_GROUP_PROTOCOL, message.member_id), version))
        return
    protocols: dict[str, bytes] = {}
    for protocol in message.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    request = JoinRequest(
        member_id=message.member_id,
        new_member_id=new_member_id(client_id if instance_id is None else instance_id),
        instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{exchange.client_host}",
        protocol_type=message.protocol_type,
        protocols=protocols,
        session_timeout_ms=message.session_timeout_ms,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=message.rebalance_timeout_ms if version > 0 else message.session_timeout_ms,
        requires_known_id=version >= _KNOWN_ID_FROM,
        may_skip_assignment=version >= _SKIPS_ASSIGNMENT_FROM,
    )

    def reply(outcome: JoinAnswer) -> Steps[None]:
        return answer_in_steps(exchange, _response_of(outcome, version), after=broker.log.end)

    yield from broker.consumer_groups.look_up(message.group_id)
    broker.groups.join(exchange, message.group_id, request, reply)


def _response_of(outcome: JoinAnswer, version: int) -> kafka.join_group.JoinGroupResponse:
    api = kafka.join_group
    no_protocol = None if version >= _NO_PROTOCOL_FROM else ""
    return api.JoinGroupResponse(
        error_code=outcome.error,
        generation_id=outcome.generation,
        protocol_type=outcome.protocol_type,
        protocol_name=no_protocol if outcome.protocol is None else outcome.protocol,
        leader=outcome.leader,
        skip_assignment=outcome.skip_assignment,
        member_id=outcome.member_id,
        members=[
            api.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in outcome.members
        ],
    )
