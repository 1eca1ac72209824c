"""StreamsGroupHeartbeat (88), versions 0 to 0.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class Status(Struct):
    status_code: int = field("int8")
    status_detail: str = field("string")


class ResponseTaskIds(Struct):
    subtopology_id: str = field("string")
    partitions: Sequence[int] = array("int32")


class ResponseEndpoint(Struct):
    host: str = field("string")
    port: int = field("uint16")


class TopicPartition(Struct):
    topic: str = field("string")
    partitions: Sequence[int] = array("int32")


class EndpointToPartitions(Struct):
    user_endpoint: ResponseEndpoint = field(ResponseEndpoint)
    active_partitions: Sequence[TopicPartition] = array(TopicPartition)
    standby_partitions: Sequence[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Response):
    KEY = 88
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    member_id: str = field("string")
    member_epoch: int = field("int32")
    heartbeat_interval_ms: int = field("int32")
    acceptable_recovery_lag: int = field("int32")
    task_offset_interval_ms: int = field("int32")
    status: Sequence[Status] | None = array(Status, null_since=0)
    active_tasks: Sequence[ResponseTaskIds] | None = array(ResponseTaskIds, null_since=0, default=None)
    standby_tasks: Sequence[ResponseTaskIds] | None = array(ResponseTaskIds, null_since=0, default=None)
    warmup_tasks: Sequence[ResponseTaskIds] | None = array(ResponseTaskIds, null_since=0, default=None)
    endpoint_information_epoch: int = field("int32")
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = array(
        EndpointToPartitions, null_since=0, default=None
    )


class KeyValue(Struct):
    key: str = field("string")
    value: str = field("string")


class TopicInfo(Struct):
    name: str = field("string")
    partitions: int = field("int32")
    replication_factor: int = field("int16")
    topic_configs: Sequence[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
    source_topics: Sequence[int] = array("int16")
    source_topic_regex: Sequence[int] = array("int16")
    repartition_source_topics: Sequence[int] = array("int16")


class Subtopology(Struct):
    subtopology_id: str = field("string")
    source_topics: Sequence[str] = array("string")
    source_topic_regex: Sequence[str] = array("string")
    state_changelog_topics: Sequence[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: Sequence[str] = array("string")
    repartition_source_topics: Sequence[TopicInfo] = array(TopicInfo)
    copartition_groups: Sequence[CopartitionGroup] = array(CopartitionGroup)


class Topology(Struct):
    epoch: int = field("int32")
    subtopologies: Sequence[Subtopology] = array(Subtopology)


class RequestTaskIds(Struct):
    subtopology_id: str = field("string")
    partitions: Sequence[int] = array("int32")


class RequestEndpoint(Struct):
    host: str = field("string")
    port: int = field("uint16")


class TaskOffset(Struct):
    subtopology_id: str = field("string")
    partition: int = field("int32")
    offset: int = field("int64")


class StreamsGroupHeartbeatRequest(Request[StreamsGroupHeartbeatResponse]):
    KEY = 88
    group_id: str = field("string")
    member_id: str = field("string")
    member_epoch: int = field("int32")
    endpoint_information_epoch: int = field("int32")
    instance_id: str | None = field("string", null_since=0, default=None)
    rack_id: str | None = field("string", null_since=0, default=None)
    rebalance_timeout_ms: int = field("int32", default=-1)
    topology: Topology | None = field(Topology, null_since=0, default=None)
    active_tasks: Sequence[RequestTaskIds] | None = array(RequestTaskIds, null_since=0, default=None)
    standby_tasks: Sequence[RequestTaskIds] | None = array(RequestTaskIds, null_since=0, default=None)
    warmup_tasks: Sequence[RequestTaskIds] | None = array(RequestTaskIds, null_since=0, default=None)
    process_id: str | None = field("string", null_since=0, default=None)
    user_endpoint: RequestEndpoint | None = field(RequestEndpoint, null_since=0, default=None)
    client_tags: Sequence[KeyValue] | None = array(KeyValue, null_since=0, default=None)
    task_offsets: Sequence[TaskOffset] | None = array(TaskOffset, null_since=0, default=None)
    task_end_offsets: Sequence[TaskOffset] | None = array(TaskOffset, null_since=0, default=None)
    shutdown_application: bool = field("bool", default=False)
