"""DeleteGroups (42), versions 0 to 2: deletes groups without members, with all offsets that they have committed."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DELETE_GROUP
from semel.log.broker.serving import Serving
from semel.log.core.entries import GroupDeleted
from semel.wire import kafka
from semel.wire.refusals import NON_EMPTY_GROUP, Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import DELETE_GROUPS

API: Final = Api(DELETE_GROUPS, (0, 2), rights=(DELETE_GROUP,), standby=Here.NOT_COORDINATOR)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.delete_groups.DeleteGroupsRequest
) -> Steps[kafka.delete_groups.DeleteGroupsResponse]:
    results = []
    for name in dict.fromkeys(request.groups_names):
        error = error_of(attempted(_delete, broker, exchange, name))
        results.append(kafka.delete_groups.DeletableGroupResult(group_id=name, error_code=error))
        yield APPEND_PIECES
    return kafka.delete_groups.DeleteGroupsResponse(results=results)


def _delete(broker: Serving, exchange: Exchange, name: str) -> None:
    broker.guard.check(exchange, DELETE_GROUP, name)
    if not broker.log.state.groups.existing(name).is_empty:
        raise Refused(NON_EMPTY_GROUP, f"group '{name}' has members")
    broker.runtime.commit(GroupDeleted(name))
    broker.guard.note_administration(exchange, "group_deleted", name)
