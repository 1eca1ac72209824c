"""AlterPartitionReassignments (45), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ReassignablePartitionResponse(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class ReassignableTopicResponse(Struct):
    name: str = field("string")
    partitions: Sequence[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response):
    KEY = 45
    throttle_time_ms: int = field("int32", default=0)
    allow_replication_factor_change: bool = field("bool", since=1, default=True)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    responses: Sequence[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ReassignablePartition(Struct):
    partition_index: int = field("int32")
    replicas: Sequence[int] | None = array("int32", null_since=0, default=None)


class ReassignableTopic(Struct):
    name: str = field("string")
    partitions: Sequence[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    KEY = 45
    timeout_ms: int = field("int32", default=60000)
    allow_replication_factor_change: bool = field("bool", since=1, default=True)
    topics: Sequence[ReassignableTopic] = array(ReassignableTopic)
