"""OffsetDelete (47), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str = field("string")
    partitions: Sequence[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response):
    KEY = 47
    error_code: int = field("int16", default=0)
    throttle_time_ms: int = field("int32", default=0)
    topics: Sequence[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field("int32")


class OffsetDeleteRequestTopic(Struct):
    name: str = field("string")
    partitions: Sequence[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    KEY = 47
    group_id: str = field("string")
    topics: Sequence[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)
