"""ElectLeaders (43), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class PartitionResult(Struct):
    partition_id: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class ReplicaElectionResult(Struct):
    topic: str = field("string")
    partition_result: Sequence[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response):
    KEY = 43
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", since=1, default=0)
    replica_election_results: Sequence[ReplicaElectionResult] = array(ReplicaElectionResult)


class TopicPartitions(Struct):
    topic: str = field("string")
    partitions: Sequence[int] = array("int32")


class ElectLeadersRequest(Request[ElectLeadersResponse]):
    KEY = 43
    election_type: int = field("int8", since=1, default=0)
    topic_partitions: Sequence[TopicPartitions] | None = array(TopicPartitions, null_since=0)
    timeout_ms: int = field("int32", default=60000)
