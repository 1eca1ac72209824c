"""ShareFetch (78), versions 1 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class LeaderIdAndEpoch(Struct):
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class AcquiredRecords(Struct):
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    delivery_count: int = field("int16")


class PartitionData(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    acknowledge_error_code: int = field("int16")
    acknowledge_error_message: str | None = field("string", null_since=0, default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)
    records: bytes | None = field("records", null_since=0, null_until=1)
    acquired_records: Sequence[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", null_since=0, default=None)


class ShareFetchResponse(Response):
    KEY = 78
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    acquisition_lock_timeout_ms: int = field("int32", since=1)
    responses: Sequence[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint)


class AcknowledgementBatch(Struct):
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    acknowledge_types: Sequence[int] = array("int8")


class FetchPartition(Struct):
    partition_index: int = field("int32")
    partition_max_bytes: int = field("int32", until=1, default=0)
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[int] = array("int32")


class ShareFetchRequest(Request[ShareFetchResponse]):
    KEY = 78
    group_id: str | None = field("string", null_since=0, default=None)
    member_id: str | None = field("string", null_since=0)
    share_session_epoch: int = field("int32")
    max_wait_ms: int = field("int32")
    min_bytes: int = field("int32")
    max_bytes: int = field("int32", default=2147483647)
    max_records: int = field("int32", since=1)
    batch_size: int = field("int32", since=1)
    share_acquire_mode: int = field("int8", since=2, default=0)
    is_renew_ack: bool = field("bool", since=2, default=False)
    topics: Sequence[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: Sequence[ForgottenTopic] = array(ForgottenTopic)
