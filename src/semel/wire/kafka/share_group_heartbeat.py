"""ShareGroupHeartbeat (76), versions 1 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class TopicPartitions(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[int] = array("int32")


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Response):
    KEY = 76
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    member_id: str | None = field("string", null_since=0, default=None)
    member_epoch: int = field("int32")
    heartbeat_interval_ms: int = field("int32")
    assignment: Assignment | None = field(Assignment, null_since=0, default=None)


class ShareGroupHeartbeatRequest(Request[ShareGroupHeartbeatResponse]):
    KEY = 76
    group_id: str = field("string")
    member_id: str = field("string")
    member_epoch: int = field("int32")
    rack_id: str | None = field("string", null_since=0, default=None)
    subscribed_topic_names: Sequence[str] | None = array("string", null_since=0, default=None)
