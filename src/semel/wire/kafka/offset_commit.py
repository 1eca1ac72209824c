"""OffsetCommit (8), versions 2 to 10, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = field("string", until=10, default="")
    topic_id: bytes = field("uuid", since=10, default=NO_ID)
    partitions: Sequence[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response):
    KEY = 8
    throttle_time_ms: int = field("int32", since=3, default=0)
    topics: Sequence[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field("int32")
    committed_offset: int = field("int64")
    committed_leader_epoch: int = field("int32", since=6, default=-1)
    committed_metadata: str | None = field("string", null_since=0)


class OffsetCommitRequestTopic(Struct):
    name: str = field("string", until=10, default="")
    topic_id: bytes = field("uuid", since=10, default=NO_ID)
    partitions: Sequence[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request[OffsetCommitResponse]):
    KEY = 8
    group_id: str = field("string")
    generation_id_or_member_epoch: int = field("int32", since=1, default=-1)
    member_id: str = field("string", since=1)
    group_instance_id: str | None = field("string", since=7, null_since=7, default=None)
    retention_time_ms: int = field("int64", since=2, until=5, default=-1)
    topics: Sequence[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)
