"""DescribeGroups (15), versions 0 to 6: groups of the classic protocol with their members and assignments.

A group that does not exist is described as dead; since version 6 it is an error. The subscription and the assignment of
a member are left out if they name a topic that the client may not describe; Apache Kafka shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED
from semel.log.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.access import ResourceType
from semel.log.core.groups.classic_group import CONSUMER, ClassicGroup, State
from semel.log.core.groups.classic_members import Member
from semel.log.core.groups.consumer_protocol import topics_named_in
from semel.wire import kafka
from semel.wire.refusals import GROUP_ID_NOT_FOUND, Refused
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_GROUPS

API: Final = Api(DESCRIBE_GROUPS, (0, 6), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR)

_NOT_FOUND_FROM = 6


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_groups.DescribeGroupsRequest
) -> Steps[kafka.describe_groups.DescribeGroupsResponse]:
    descriptions = []
    for name in dict.fromkeys(request.groups):
        group = attempted(_describe, broker, exchange, name)
        if isinstance(group, Refused):
            is_known = group.error != GROUP_ID_NOT_FOUND or exchange.version >= _NOT_FOUND_FROM
            group = _described(name, State.DEAD, error=group if is_known else None)
        if not group.error_code and request.include_authorized_operations:
            group.authorized_operations = broker.guard.operations(exchange, ResourceType.GROUP, name)
        if group.protocol_type == CONSUMER and broker.guard.in_force:
            yield from _leave_out_unseen(broker, exchange, group.members)
        descriptions.append(group)
        yield 4 + len(group.members)
    return kafka.describe_groups.DescribeGroupsResponse(groups=descriptions)


def _described(
    name: str,
    state: State,
    *,
    protocol_type: str = "",
    protocol: str = "",
    members: Sequence[kafka.describe_groups.DescribedGroupMember] = (),
    error: Refused | None = None,
) -> kafka.describe_groups.DescribedGroup:
    return kafka.describe_groups.DescribedGroup(
        error_code=error_of(error),
        error_message=message_of(error),
        group_id=name,
        group_state=state.value,
        protocol_type=protocol_type,
        protocol_data=protocol,
        members=members,
        authorized_operations=NOT_ASKED,
    )


def _leave_out_unseen(
    broker: Serving, exchange: Exchange, members: Iterable[kafka.describe_groups.DescribedGroupMember]
) -> Steps[None]:
    for member in members:
        names = topics_named_in(member.member_metadata, member.member_assignment)
        is_seen = names is not None
        for name in names or ():
            is_seen = is_seen and broker.guard.sees(exchange, DESCRIBE_TOPIC, name)
            yield 1
        if not is_seen:
            member.member_metadata = member.member_assignment = b""
        yield 2


def _describe(broker: Serving, exchange: Exchange, name: str) -> kafka.describe_groups.DescribedGroup:
    broker.guard.check(exchange, DESCRIBE_GROUP, name)
    machine = broker.log.state.groups.existing(name).machine
    if machine is None:
        return _described(name, State.EMPTY)
    if not isinstance(machine, ClassicGroup):
        raise Refused(GROUP_ID_NOT_FOUND, f"group '{name}' is not a classic group")
    # Until the generation is complete, the answer shows neither subscriptions nor assignments.
    protocol = machine.protocol if machine.state is State.STABLE else None
    return _described(
        name,
        machine.state,
        protocol_type=machine.protocol_type or "",
        protocol=protocol or "",
        members=[_described_member(member, protocol) for member in machine.members],
    )


def _described_member(member: Member, protocol: str | None) -> kafka.describe_groups.DescribedGroupMember:
    return kafka.describe_groups.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.protocols.get(protocol, b""),
        member_assignment=b"" if protocol is None else member.assignment,
    )
