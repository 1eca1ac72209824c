"""DeleteGroups (42), versions 0 to 2: groups without members go, with all they have committed."""

from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered_in_steps, attempted
from semel.core.entries import GroupDeleted
from semel.core.refusals import NON_EMPTY_GROUP, Refused
from semel.core.steps import APPEND_PIECES, Steps

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


@answered_in_steps
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Steps[Fields]:
    results = []
    for name in dict.fromkeys(request.groups_names):
        results.append({"group_id": name, **attempted(_delete, broker, name)})
        yield APPEND_PIECES
    return {"results": results}


def _delete(broker: "Broker", name: str) -> Fields:
    if not broker.log.state.groups.existing(name).is_empty:
        raise Refused(NON_EMPTY_GROUP, f"group '{name}' has members")
    broker.commit(GroupDeleted(name))
    return {}
