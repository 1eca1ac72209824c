"""AlterReplicaLogDirs (34), versions 1 and 2: a partition may be moved into the only data directory, where it is."""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import ALTER_REPLICA_LOG_DIRS

API: Final = Api(ALTER_REPLICA_LOG_DIRS, (1, 2), rights=(ALTER_CLUSTER,), standby=Here.NOT_LEADER)


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    refusal = broker.guard.error(exchange, ALTER_CLUSTER)
    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            partitions = []
            for index in topic.partitions:
                outcome = {"error_code": refusal} if refusal else attempted(_move, broker, directory, topic, index)
                partitions.append({"partition_index": index, **outcome})
                yield 1
            results.append({"topic_name": topic.name, "partitions": partitions})
            yield 1
    return {"results": results}


def _move(broker: Serving, directory: Any, topic: Any, index: int) -> Fields:
    if directory.path != broker.log.files.describe(""):
        raise Refused(ErrorCode.LOG_DIR_NOT_FOUND, "there is one data directory, and another path")
    partition_of(broker, topic.name, index)
    return {}
