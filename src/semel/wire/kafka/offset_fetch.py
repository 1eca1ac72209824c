"""OffsetFetch (9), versions 1 to 10, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field("int32", until=8)
    committed_offset: int = field("int64", until=8)
    committed_leader_epoch: int = field("int32", since=5, until=8, default=-1)
    metadata: str | None = field("string", until=8, null_since=0, null_until=8)
    error_code: int = field("int16", until=8, default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = field("string", until=8)
    partitions: Sequence[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=8)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field("int32", since=8)
    committed_offset: int = field("int64", since=8)
    committed_leader_epoch: int = field("int32", since=8, default=-1)
    metadata: str | None = field("string", since=8, null_since=8)
    error_code: int = field("int16", since=8, default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = field("string", since=8, until=10, default="")
    topic_id: bytes = field("uuid", since=10, default=NO_ID)
    partitions: Sequence[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = field("string", since=8)
    topics: Sequence[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = field("int16", since=8, default=0)


class OffsetFetchResponse(Response):
    KEY = 9
    throttle_time_ms: int = field("int32", since=3, default=0)
    topics: Sequence[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=8, default=())
    error_code: int = field("int16", since=2, until=8, default=0)
    groups: Sequence[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8, default=())


class OffsetFetchRequestTopic(Struct):
    name: str = field("string", until=8)
    partition_indexes: Sequence[int] = array("int32", until=8)


class OffsetFetchRequestTopics(Struct):
    name: str = field("string", since=8, until=10, default="")
    topic_id: bytes = field("uuid", since=10, default=NO_ID)
    partition_indexes: Sequence[int] = array("int32", since=8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = field("string", since=8)
    member_id: str | None = field("string", since=9, null_since=9, default=None)
    member_epoch: int = field("int32", since=9, default=-1)
    topics: Sequence[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, since=8, null_since=8)


class OffsetFetchRequest(Request[OffsetFetchResponse]):
    KEY = 9
    group_id: str = field("string", until=8, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=8, null_since=2, null_until=8, default=()
    )
    groups: Sequence[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8, default=())
    require_stable: bool = field("bool", since=7, default=False)
