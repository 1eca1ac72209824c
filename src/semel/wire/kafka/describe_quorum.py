"""DescribeQuorum (55), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class ReplicaState(Struct):
    replica_id: int = field("int32")
    replica_directory_id: bytes = field("uuid", since=2, default=NO_ID)
    log_end_offset: int = field("int64")
    last_fetch_timestamp: int = field("int64", since=1, default=-1)
    last_caught_up_timestamp: int = field("int64", since=1, default=-1)


class ResponsePartitionData(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", since=2, null_since=2, default=None)
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    high_watermark: int = field("int64")
    current_voters: Sequence[ReplicaState] = array(ReplicaState)
    observers: Sequence[ReplicaState] = array(ReplicaState)


class ResponseTopicData(Struct):
    topic_name: str = field("string")
    partitions: Sequence[ResponsePartitionData] = array(ResponsePartitionData)


class Listener(Struct):
    name: str = field("string", since=2)
    host: str = field("string", since=2)
    port: int = field("uint16", since=2)


class Node(Struct):
    node_id: int = field("int32", since=2)
    listeners: Sequence[Listener] = array(Listener, since=2)


class DescribeQuorumResponse(Response):
    KEY = 55
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", since=2, null_since=2, default=None)
    topics: Sequence[ResponseTopicData] = array(ResponseTopicData)
    nodes: Sequence[Node] = array(Node, since=2, default=())


class RequestPartitionData(Struct):
    partition_index: int = field("int32")


class RequestTopicData(Struct):
    topic_name: str = field("string")
    partitions: Sequence[RequestPartitionData] = array(RequestPartitionData)


class DescribeQuorumRequest(Request[DescribeQuorumResponse]):
    KEY = 55
    topics: Sequence[RequestTopicData] = array(RequestTopicData)
