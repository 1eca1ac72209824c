"""Heartbeat (12), versions 0 to 4: a member shows that it is alive, and learns whether it must join again."""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered, attempted
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP
from semel.log.broker.serving import Serving
from semel.wire.versions import HEARTBEAT

API: Final = Api(HEARTBEAT, (0, 4), rights=(READ_GROUP,), standby=Here.NOT_COORDINATOR, is_heartbeat=True)


@answered
def handle(broker: Serving, exchange: Exchange, request: Any) -> Fields:
    return attempted(_heartbeat, broker, exchange, request)


def _heartbeat(broker: Serving, exchange: Exchange, request: Any) -> Fields:
    broker.guard.check(exchange, READ_GROUP, request.group_id)
    instance_id = getattr(request, "group_instance_id", None)
    broker.groups.heartbeat(exchange, request.group_id, request.member_id, instance_id, request.generation_id)
    return {}
