"""TxnOffsetCommit (28), versions 0 to 5, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field("string")
    partitions: Sequence[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Response):
    KEY = 28
    throttle_time_ms: int = field("int32", default=0)
    topics: Sequence[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field("int32")
    committed_offset: int = field("int64")
    committed_leader_epoch: int = field("int32", since=2, default=-1)
    committed_metadata: str | None = field("string", null_since=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field("string")
    partitions: Sequence[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    KEY = 28
    transactional_id: str = field("string")
    group_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    generation_id: int = field("int32", since=3, default=-1)
    member_id: str = field("string", since=3, default="")
    group_instance_id: str | None = field("string", since=3, null_since=3, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)
