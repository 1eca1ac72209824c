"""AlterReplicaLogDirs (34), versions 1 and 2: a partition may be moved into the only data directory, where it is."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import ALTER_REPLICA_LOG_DIRS

API: Final = Api(ALTER_REPLICA_LOG_DIRS, (1, 2), rights=(ALTER_CLUSTER,), standby=Here.NOT_LEADER)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.alter_replica_log_dirs.AlterReplicaLogDirsRequest
) -> Steps[kafka.alter_replica_log_dirs.AlterReplicaLogDirsResponse]:
    api = kafka.alter_replica_log_dirs
    refusal = broker.guard.error(exchange, ALTER_CLUSTER)
    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            partitions = []
            for index in topic.partitions:
                error = refusal or error_of(attempted(_move, broker, directory.path, topic.name, index))
                partitions.append(api.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
                yield 1
            results.append(api.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions))
            yield 1
    return api.AlterReplicaLogDirsResponse(results=results)


def _move(broker: Serving, path: str, topic_name: str, index: int) -> None:
    if path != broker.log.files.describe(""):
        raise Refused(ErrorCode.LOG_DIR_NOT_FOUND, "there is one data directory, and another path")
    partition_of(broker, topic_name, index)
