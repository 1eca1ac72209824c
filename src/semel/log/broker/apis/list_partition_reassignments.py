"""ListPartitionReassignments (46), version 0: none is ever under way, because there is one broker to assign to."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.versions import LIST_PARTITION_REASSIGNMENTS

API: Final = Api(LIST_PARTITION_REASSIGNMENTS, (0, 0), rights=(DESCRIBE_CLUSTER,), standby=Here.NOT_CONTROLLER)


@answered
def handle(
    broker: Serving, exchange: Exchange, request: kafka.list_partition_reassignments.ListPartitionReassignmentsRequest
) -> kafka.list_partition_reassignments.ListPartitionReassignmentsResponse:
    error = broker.guard.error(exchange, DESCRIBE_CLUSTER)
    return kafka.list_partition_reassignments.ListPartitionReassignmentsResponse(error_code=error, topics=())
