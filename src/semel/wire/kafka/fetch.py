"""Fetch (1), versions 4 to 18, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class EpochEndOffset(Struct):
    epoch: int = field("int32", since=12, default=-1)
    end_offset: int = field("int64", since=12, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field("int32", since=12, default=-1)
    leader_epoch: int = field("int32", since=12, default=-1)


class SnapshotId(Struct):
    end_offset: int = field("int64", default=-1)
    epoch: int = field("int32", default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field("int64", since=4)
    first_offset: int = field("int64", since=4)


class PartitionData(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    high_watermark: int = field("int64")
    last_stable_offset: int = field("int64", since=4, default=-1)
    log_start_offset: int = field("int64", since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, since=12, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = field(SnapshotId, since=12, tag=2, default=None)
    aborted_transactions: Sequence[AbortedTransaction] | None = array(AbortedTransaction, since=4, null_since=4)
    preferred_read_replica: int = field("int32", since=11, default=-1)
    records: bytes | None = field("records", null_since=0)


class FetchableTopicResponse(Struct):
    topic: str = field("string", until=13, default="")
    topic_id: bytes = field("uuid", since=13, default=NO_ID)
    partitions: Sequence[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = field("int32", since=16)
    host: str = field("string", since=16)
    port: int = field("int32", since=16)
    rack: str | None = field("string", since=16, null_since=16, default=None)


class FetchResponse(Response):
    KEY = 1
    throttle_time_ms: int = field("int32", since=1, default=0)
    error_code: int = field("int16", since=7, default=0)
    session_id: int = field("int32", since=7, default=0)
    responses: Sequence[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0, default=())


class ReplicaState(Struct):
    replica_id: int = field("int32", since=15, default=-1)
    replica_epoch: int = field("int64", since=15, default=-1)


class FetchPartition(Struct):
    partition: int = field("int32")
    current_leader_epoch: int = field("int32", since=9, default=-1)
    fetch_offset: int = field("int64")
    last_fetched_epoch: int = field("int32", since=12, default=-1)
    log_start_offset: int = field("int64", since=5, default=-1)
    partition_max_bytes: int = field("int32")
    replica_directory_id: bytes = field("uuid", since=17, tag=0, default=NO_ID)
    high_watermark: int = field("int64", since=18, tag=1, default=9223372036854775807)


class FetchTopic(Struct):
    topic: str = field("string", until=13, default="")
    topic_id: bytes = field("uuid", since=13, default=NO_ID)
    partitions: Sequence[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = field("string", since=7, until=13, default="")
    topic_id: bytes = field("uuid", since=13, default=NO_ID)
    partitions: Sequence[int] = array("int32", since=7)


class FetchRequest(Request[FetchResponse]):
    KEY = 1
    cluster_id: str | None = field("string", since=12, null_since=12, tag=0, default=None)
    replica_id: int = field("int32", until=15, default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, since=15, tag=1, default=None)
    max_wait_ms: int = field("int32")
    min_bytes: int = field("int32")
    max_bytes: int = field("int32", since=3, default=2147483647)
    isolation_level: int = field("int8", since=4, default=0)
    session_id: int = field("int32", since=7, default=0)
    session_epoch: int = field("int32", since=7, default=-1)
    topics: Sequence[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: Sequence[ForgottenTopic] = array(ForgottenTopic, since=7, default=())
    rack_id: str = field("string", since=11, default="")
