"""AlterShareGroupOffsets (91), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field("string")
    topic_id: bytes = field("uuid")
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


class AlterShareGroupOffsetsResponse(Response):
    KEY = 91
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field("int32")
    start_offset: int = field("int64")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field("string")
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


class AlterShareGroupOffsetsRequest(Request[AlterShareGroupOffsetsResponse]):
    KEY = 91
    group_id: str = field("string")
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)
