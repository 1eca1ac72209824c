"""ListPartitionReassignments (46), version 0: none is ever under way, because there is one broker to assign to."""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving

RIGHTS: Final = (DESCRIBE_CLUSTER,)


@answered
def handle(broker: Serving, exchange: Exchange, request: Any) -> Fields:
    return {"error_code": broker.guard.error(exchange, DESCRIBE_CLUSTER), "error_message": None, "topics": []}
