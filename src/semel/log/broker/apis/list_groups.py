"""ListGroups (16), versions 0 to 5: all groups, or only those in some states or of some types."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from semel.log.broker.serving import Serving
from semel.log.core.groups.classic_group import State
from semel.log.core.groups.group import Group
from semel.wire import kafka
from semel.wire.steps import Steps, each
from semel.wire.versions import LIST_GROUPS

API: Final = Api(LIST_GROUPS, (0, 5), rights=(DESCRIBE_CLUSTER, DESCRIBE_GROUP), standby=Here.LISTS_NOTHING)

_CLASSIC = "classic"


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.list_groups.ListGroupsRequest
) -> Steps[kafka.list_groups.ListGroupsResponse]:
    states = {state.strip().lower() for state in request.states_filter}
    types = {group_type.strip().lower() for group_type in request.types_filter}
    sees_all = broker.guard.sees(exchange, DESCRIBE_CLUSTER)

    def listed(group: Group) -> kafka.list_groups.ListedGroup | None:
        if not (sees_all or broker.guard.sees(exchange, DESCRIBE_GROUP, group.name)):
            return None
        shown = _shown(group)
        has_state = not states or shown.group_state.lower() in states
        return shown if has_state and (not types or shown.group_type in types) else None

    groups = yield from each(list(broker.log.state.groups), listed)
    return kafka.list_groups.ListGroupsResponse(groups=[group for group in groups if group is not None])


def _shown(group: Group) -> kafka.list_groups.ListedGroup:
    machine = group.machine
    return kafka.list_groups.ListedGroup(
        group_id=group.name,
        protocol_type=(machine.protocol_type or "") if machine is not None else "",
        group_state=machine.state_name if machine is not None else State.EMPTY.value,
        group_type=machine.group_type if machine is not None else _CLASSIC,
    )
