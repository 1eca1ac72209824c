"""DescribeGroups (15), versions 0 to 6: groups of the classic protocol with their members and assignments.

A group that does not exist is described as dead; since version 6 it is an error. The subscription and the assignment of
a member are left out if they name a topic that the client may not describe; Apache Kafka shows them.
"""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED
from semel.log.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.access import ResourceType
from semel.log.core.groups.classic_group import CONSUMER, ClassicGroup, State
from semel.log.core.groups.classic_members import Member
from semel.log.core.groups.consumer_protocol import topics_named_in
from semel.wire.refusals import GROUP_ID_NOT_FOUND, Refused
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_GROUPS

API: Final = Api(DESCRIBE_GROUPS, (0, 6), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR)

_NOT_FOUND_FROM = 6
_DEAD: Final = {
    "group_state": State.DEAD.value,
    "protocol_type": "",
    "protocol_data": "",
    "members": [],
    "authorized_operations": NOT_ASKED,
}


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    shows_operations = getattr(request, "include_authorized_operations", False)
    descriptions = []
    for name in dict.fromkeys(request.groups):
        fields = attempted(_describe, broker, exchange, name)
        if fields.get("error_code") == GROUP_ID_NOT_FOUND and exchange.version < _NOT_FOUND_FROM:
            fields = {}
        if "error_code" not in fields and shows_operations:
            operations = broker.guard.operations(exchange, ResourceType.GROUP, name)
            fields = {**fields, "authorized_operations": operations}
        if fields.get("protocol_type") == CONSUMER and broker.guard.in_force:
            yield from _leave_out_unseen(broker, exchange, fields["members"])
        descriptions.append({"group_id": name, **_DEAD, **fields})
        yield 4 + _member_count(fields)
    return {"groups": descriptions}


def _member_count(fields: Fields) -> int:
    members = fields.get("members")
    return len(members) if isinstance(members, list) else 0


def _leave_out_unseen(broker: Serving, exchange: Exchange, members: Any) -> Steps[None]:
    for fields in members:
        names = topics_named_in(fields["member_metadata"], fields["member_assignment"])
        is_seen = names is not None
        for name in names or ():
            is_seen = is_seen and broker.guard.sees(exchange, DESCRIBE_TOPIC, name)
            yield 1
        if not is_seen:
            fields["member_metadata"] = fields["member_assignment"] = b""
        yield 2


def _describe(broker: Serving, exchange: Exchange, name: str) -> Fields:
    broker.guard.check(exchange, DESCRIBE_GROUP, name)
    machine = broker.log.state.groups.existing(name).machine
    if machine is None:
        return {"group_state": State.EMPTY.value}
    if not isinstance(machine, ClassicGroup):
        raise Refused(GROUP_ID_NOT_FOUND, f"group '{name}' is not a classic group")
    # Until the generation is complete, the answer shows neither subscriptions nor assignments.
    protocol = machine.protocol if machine.state is State.STABLE else None
    return {
        "group_state": machine.state.value,
        "protocol_type": machine.protocol_type or "",
        "protocol_data": protocol or "",
        "members": [_member_fields(member, protocol) for member in machine.members],
    }


def _member_fields(member: Member, protocol: str | None) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": b"" if protocol is None else member.protocols.get(protocol, b""),
        "member_assignment": b"" if protocol is None else member.assignment,
    }
