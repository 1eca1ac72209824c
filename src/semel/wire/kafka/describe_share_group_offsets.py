"""DescribeShareGroupOffsets (90), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field("int32")
    start_offset: int = field("int64")
    leader_epoch: int = field("int32")
    lag: int = field("int64", since=1, default=-1)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field("string")
    topic_id: bytes = field("uuid")
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field("string")
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class DescribeShareGroupOffsetsResponse(Response):
    KEY = 90
    throttle_time_ms: int = field("int32", default=0)
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field("string")
    partitions: Sequence[int] = array("int32")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field("string")
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, null_since=0
    )


class DescribeShareGroupOffsetsRequest(Request[DescribeShareGroupOffsetsResponse]):
    KEY = 90
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)
