"""AlterPartitionReassignments (45), versions 0 and 1: a partition may be assigned to the broker that has it, and to no
other. So nothing changes, and no reassignment is ever under way that could be cancelled.
"""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted
from semel.log.broker.apis.create_topics import check_assignments
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import ALTER_PARTITION_REASSIGNMENTS

API: Final = Api(ALTER_PARTITION_REASSIGNMENTS, (0, 1), rights=(ALTER_CLUSTER,), standby=Here.NOT_CONTROLLER)


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    refusal = broker.guard.error(exchange, ALTER_CLUSTER)
    responses = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            outcome = {"error_code": refusal} if refusal else attempted(_reassign, broker, topic.name, item)
            partitions.append({"partition_index": item.partition_index, "error_message": None, **outcome})
            yield 1
        responses.append({"name": topic.name, "partitions": partitions})
        yield 1
    # Version 0 always allows it.
    allows = getattr(request, "allow_replication_factor_change", True)
    fields: dict[str, object] = {"error_code": refusal, "error_message": None, "responses": responses}
    return fields | {"allow_replication_factor_change": allows}


def _reassign(broker: Serving, topic_name: str, item: Any) -> Fields:
    partition_of(broker, topic_name, item.partition_index)
    if item.replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of it is under way")
    check_assignments(broker, [item.replicas])
    return {}
