"""ListPartitionReassignments (46), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class OngoingPartitionReassignment(Struct):
    partition_index: int = field("int32")
    replicas: Sequence[int] = array("int32")
    adding_replicas: Sequence[int] = array("int32")
    removing_replicas: Sequence[int] = array("int32")


class OngoingTopicReassignment(Struct):
    name: str = field("string")
    partitions: Sequence[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response):
    KEY = 46
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    topics: Sequence[OngoingTopicReassignment] = array(OngoingTopicReassignment)


class ListPartitionReassignmentsTopics(Struct):
    name: str = field("string")
    partition_indexes: Sequence[int] = array("int32")


class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    KEY = 46
    timeout_ms: int = field("int32", default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, null_since=0, default=None
    )
