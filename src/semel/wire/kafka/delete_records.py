"""DeleteRecords (21), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field("int32")
    low_watermark: int = field("int64")
    error_code: int = field("int16", default=0)


class DeleteRecordsTopicResult(Struct):
    name: str = field("string")
    partitions: Sequence[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Response):
    KEY = 21
    throttle_time_ms: int = field("int32", default=0)
    topics: Sequence[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


class DeleteRecordsPartition(Struct):
    partition_index: int = field("int32")
    offset: int = field("int64")


class DeleteRecordsTopic(Struct):
    name: str = field("string")
    partitions: Sequence[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    KEY = 21
    topics: Sequence[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = field("int32")
