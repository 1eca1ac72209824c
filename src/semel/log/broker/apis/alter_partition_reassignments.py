"""AlterPartitionReassignments (45), versions 0 and 1: a partition may be assigned to the broker that has it, and to no
other. So nothing changes, and no reassignment is ever under way that could be cancelled.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.apis.create_topics import check_assignments
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import ALTER_PARTITION_REASSIGNMENTS

API: Final = Api(ALTER_PARTITION_REASSIGNMENTS, (0, 1), rights=(ALTER_CLUSTER,), standby=Here.NOT_CONTROLLER)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.alter_partition_reassignments.AlterPartitionReassignmentsRequest
) -> Steps[kafka.alter_partition_reassignments.AlterPartitionReassignmentsResponse]:
    api = kafka.alter_partition_reassignments
    refusal = broker.guard.error(exchange, ALTER_CLUSTER)
    responses = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            outcome = None if refusal else attempted(_reassign, broker, topic.name, item)
            partitions.append(
                api.ReassignablePartitionResponse(
                    partition_index=item.partition_index,
                    error_code=refusal or error_of(outcome),
                    error_message=message_of(outcome),
                )
            )
            yield 1
        responses.append(api.ReassignableTopicResponse(name=topic.name, partitions=partitions))
        yield 1
    return api.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=refusal,
        responses=responses,
    )


def _reassign(
    broker: Serving, topic_name: str, item: kafka.alter_partition_reassignments.ReassignablePartition
) -> None:
    partition_of(broker, topic_name, item.partition_index)
    if item.replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of it is under way")
    check_assignments(broker, [item.replicas])
