"""DescribeLogDirs (35), versions 1 to 5, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribeLogDirsPartition(Struct):
    partition_index: int = field("int32")
    partition_size: int = field("int64")
    offset_lag: int = field("int64")
    is_future_key: bool = field("bool")


class DescribeLogDirsTopic(Struct):
    name: str = field("string")
    partitions: Sequence[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = field("int16", default=0)
    log_dir: str = field("string")
    topics: Sequence[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = field("int64", since=4, default=-1)
    usable_bytes: int = field("int64", since=4, default=-1)
    is_cordoned: bool = field("bool", since=5, default=False)


class DescribeLogDirsResponse(Response):
    KEY = 35
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", since=3, default=0)
    results: Sequence[DescribeLogDirsResult] = array(DescribeLogDirsResult)


class DescribableLogDirTopic(Struct):
    topic: str = field("string")
    partitions: Sequence[int] = array("int32")


class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    KEY = 35
    topics: Sequence[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, null_since=0)
