"""ConsumerGroupDescribe (69), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class TopicPartitions(Struct):
    topic_id: bytes = field("uuid")
    topic_name: str = field("string")
    partitions: Sequence[int] = array("int32")


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = field("string")
    instance_id: str | None = field("string", null_since=0, default=None)
    rack_id: str | None = field("string", null_since=0, default=None)
    member_epoch: int = field("int32")
    client_id: str = field("string")
    client_host: str = field("string")
    subscribed_topic_names: Sequence[str] = array("string")
    subscribed_topic_regex: str | None = field("string", null_since=0, default=None)
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    member_type: int = field("int8", since=1, default=-1)


class DescribedGroup(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    group_id: str = field("string")
    group_state: str = field("string")
    group_epoch: int = field("int32")
    assignment_epoch: int = field("int32")
    assignor_name: str = field("string")
    members: Sequence[Member] = array(Member)
    authorized_operations: int = field("int32", default=-2147483648)


class ConsumerGroupDescribeResponse(Response):
    KEY = 69
    throttle_time_ms: int = field("int32", default=0)
    groups: Sequence[DescribedGroup] = array(DescribedGroup)


class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    KEY = 69
    group_ids: Sequence[str] = array("string")
    include_authorized_operations: bool = field("bool")
