"""ListOffsets (2), versions 1 to 11, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    timestamp: int = field("int64", since=1, default=-1)
    offset: int = field("int64", since=1, default=-1)
    leader_epoch: int = field("int32", since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field("string")
    partitions: Sequence[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response):
    KEY = 2
    throttle_time_ms: int = field("int32", since=2, default=0)
    topics: Sequence[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


class ListOffsetsPartition(Struct):
    partition_index: int = field("int32")
    current_leader_epoch: int = field("int32", since=4, default=-1)
    timestamp: int = field("int64")


class ListOffsetsTopic(Struct):
    name: str = field("string")
    partitions: Sequence[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request[ListOffsetsResponse]):
    KEY = 2
    replica_id: int = field("int32")
    isolation_level: int = field("int8", since=2, default=0)
    topics: Sequence[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = field("int32", since=10, default=0)
