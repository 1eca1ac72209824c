"""ConsumerGroupHeartbeat (68), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ResponseTopicPartitions(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[int] = array("int32")


class Assignment(Struct):
    topic_partitions: Sequence[ResponseTopicPartitions] = array(ResponseTopicPartitions)


class ConsumerGroupHeartbeatResponse(Response):
    KEY = 68
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    member_id: str | None = field("string", null_since=0, default=None)
    member_epoch: int = field("int32")
    heartbeat_interval_ms: int = field("int32")
    assignment: Assignment | None = field(Assignment, null_since=0, default=None)


class RequestTopicPartitions(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[int] = array("int32")


class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    KEY = 68
    group_id: str = field("string")
    member_id: str = field("string")
    member_epoch: int = field("int32")
    instance_id: str | None = field("string", null_since=0, default=None)
    rack_id: str | None = field("string", null_since=0, default=None)
    rebalance_timeout_ms: int = field("int32", default=-1)
    subscribed_topic_names: Sequence[str] | None = array("string", null_since=0, default=None)
    subscribed_topic_regex: str | None = field("string", since=1, null_since=1, default=None)
    server_assignor: str | None = field("string", null_since=0, default=None)
    topic_partitions: Sequence[RequestTopicPartitions] | None = array(
        RequestTopicPartitions, null_since=0, default=None
    )
