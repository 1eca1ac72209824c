"""CreatePartitions (37), versions 0 to 3, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class CreatePartitionsTopicResult(Struct):
    name: str = field("string")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class CreatePartitionsResponse(Response):
    KEY = 37
    throttle_time_ms: int = field("int32", default=0)
    results: Sequence[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class CreatePartitionsAssignment(Struct):
    broker_ids: Sequence[int] = array("int32")


class CreatePartitionsTopic(Struct):
    name: str = field("string")
    count: int = field("int32")
    assignments: Sequence[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, null_since=0)


class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    KEY = 37
    topics: Sequence[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = field("int32")
    validate_only: bool = field("bool")
