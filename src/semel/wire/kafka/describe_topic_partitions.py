"""DescribeTopicPartitions (75), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field("int16", default=0)
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32", default=-1)
    replica_nodes: Sequence[int] = array("int32")
    isr_nodes: Sequence[int] = array("int32")
    eligible_leader_replicas: Sequence[int] | None = array("int32", null_since=0, default=None)
    last_known_elr: Sequence[int] | None = array("int32", null_since=0, default=None)
    offline_replicas: Sequence[int] = array("int32")


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field("int16", default=0)
    name: str | None = field("string", null_since=0)
    topic_id: bytes = field("uuid")
    is_internal: bool = field("bool", default=False)
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = field("int32", default=-2147483648)


class ResponseCursor(Struct):
    topic_name: str = field("string")
    partition_index: int = field("int32")


class DescribeTopicPartitionsResponse(Response):
    KEY = 75
    throttle_time_ms: int = field("int32", default=0)
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: ResponseCursor | None = field(ResponseCursor, null_since=0, default=None)


class TopicRequest(Struct):
    name: str = field("string")


class RequestCursor(Struct):
    topic_name: str = field("string")
    partition_index: int = field("int32")


class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    KEY = 75
    topics: Sequence[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = field("int32", default=2000)
    cursor: RequestCursor | None = field(RequestCursor, null_since=0, default=None)
