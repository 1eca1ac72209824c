"""StreamsGroupDescribe (89), versions 0 to 0.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class KeyValue(Struct):
    key: str = field("string")
    value: str = field("string")


class TopicInfo(Struct):
    name: str = field("string")
    partitions: int = field("int32")
    replication_factor: int = field("int16")
    topic_configs: Sequence[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    subtopology_id: str = field("string")
    source_topics: Sequence[str] = array("string")
    repartition_sink_topics: Sequence[str] = array("string")
    state_changelog_topics: Sequence[TopicInfo] = array(TopicInfo)
    repartition_source_topics: Sequence[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    epoch: int = field("int32")
    subtopologies: Sequence[Subtopology] | None = array(Subtopology, null_since=0, default=None)


class Endpoint(Struct):
    host: str = field("string")
    port: int = field("uint16")


class TaskOffset(Struct):
    subtopology_id: str = field("string")
    partition: int = field("int32")
    offset: int = field("int64")


class TaskIds(Struct):
    subtopology_id: str = field("string")
    partitions: Sequence[int] = array("int32")


class Assignment(Struct):
    active_tasks: Sequence[TaskIds] = array(TaskIds)
    standby_tasks: Sequence[TaskIds] = array(TaskIds)
    warmup_tasks: Sequence[TaskIds] = array(TaskIds)


class Member(Struct):
    member_id: str = field("string")
    member_epoch: int = field("int32")
    instance_id: str | None = field("string", null_since=0, default=None)
    rack_id: str | None = field("string", null_since=0, default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    topology_epoch: int = field("int32")
    process_id: str = field("string")
    user_endpoint: Endpoint | None = field(Endpoint, null_since=0, default=None)
    client_tags: Sequence[KeyValue] = array(KeyValue)
    task_offsets: Sequence[TaskOffset] = array(TaskOffset)
    task_end_offsets: Sequence[TaskOffset] = array(TaskOffset)
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    is_classic: bool = field("bool")


class DescribedGroup(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    group_id: str = field("string")
    group_state: str = field("string")
    group_epoch: int = field("int32")
    assignment_epoch: int = field("int32")
    topology: Topology | None = field(Topology, null_since=0, default=None)
    members: Sequence[Member] = array(Member)
    authorized_operations: int = field("int32", default=-2147483648)


class StreamsGroupDescribeResponse(Response):
    KEY = 89
    throttle_time_ms: int = field("int32", default=0)
    groups: Sequence[DescribedGroup] = array(DescribedGroup)


class StreamsGroupDescribeRequest(Request[StreamsGroupDescribeResponse]):
    KEY = 89
    group_ids: Sequence[str] = array("string")
    include_authorized_operations: bool = field("bool")
