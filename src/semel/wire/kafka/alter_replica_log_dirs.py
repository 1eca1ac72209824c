"""AlterReplicaLogDirs (34), versions 1 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field("string")
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response):
    KEY = 34
    throttle_time_ms: int = field("int32", default=0)
    results: Sequence[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


class AlterReplicaLogDirTopic(Struct):
    name: str = field("string")
    partitions: Sequence[int] = array("int32")


class AlterReplicaLogDir(Struct):
    path: str = field("string")
    topics: Sequence[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    KEY = 34
    dirs: Sequence[AlterReplicaLogDir] = array(AlterReplicaLogDir)
