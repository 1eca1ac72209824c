"""OffsetForLeaderEpoch (23), versions 2 to 4, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class EpochEndOffset(Struct):
    error_code: int = field("int16", default=0)
    partition: int = field("int32")
    leader_epoch: int = field("int32", since=1, default=-1)
    end_offset: int = field("int64", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field("string")
    partitions: Sequence[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response):
    KEY = 23
    throttle_time_ms: int = field("int32", since=2, default=0)
    topics: Sequence[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


class OffsetForLeaderPartition(Struct):
    partition: int = field("int32")
    current_leader_epoch: int = field("int32", since=2, default=-1)
    leader_epoch: int = field("int32")


class OffsetForLeaderTopic(Struct):
    topic: str = field("string")
    partitions: Sequence[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    KEY = 23
    replica_id: int = field("int32", since=3, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)
