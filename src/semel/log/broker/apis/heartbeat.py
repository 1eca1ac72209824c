"""Heartbeat (12), versions 0 to 4: a member shows that it is alive, and learns whether it must join again."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered, attempted, error_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.versions import HEARTBEAT

API: Final = Api(HEARTBEAT, (0, 4), rights=(READ_GROUP,), standby=Here.NOT_COORDINATOR, is_heartbeat=True)


@answered
def handle(
    broker: Serving, exchange: Exchange, request: kafka.heartbeat.HeartbeatRequest
) -> kafka.heartbeat.HeartbeatResponse:
    refusal = attempted(_heartbeat, broker, exchange, request)
    return kafka.heartbeat.HeartbeatResponse(error_code=error_of(refusal))


def _heartbeat(broker: Serving, exchange: Exchange, request: kafka.heartbeat.HeartbeatRequest) -> None:
    broker.guard.check(exchange, READ_GROUP, request.group_id)
    broker.groups.heartbeat(
        exchange, request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
