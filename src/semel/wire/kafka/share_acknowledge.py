"""ShareAcknowledge (79), versions 1 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class LeaderIdAndEpoch(Struct):
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class PartitionData(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", null_since=0, default=None)


class ShareAcknowledgeResponse(Response):
    KEY = 79
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    acquisition_lock_timeout_ms: int = field("int32", since=2, default=0)
    responses: Sequence[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint)


class AcknowledgementBatch(Struct):
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    acknowledge_types: Sequence[int] = array("int8")


class AcknowledgePartition(Struct):
    partition_index: int = field("int32")
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    topic_id: bytes = field("uuid")
    partitions: Sequence[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    KEY = 79
    group_id: str | None = field("string", null_since=0, default=None)
    member_id: str | None = field("string", null_since=0)
    share_session_epoch: int = field("int32")
    is_renew_ack: bool = field("bool", since=2, default=False)
    topics: Sequence[AcknowledgeTopic] = array(AcknowledgeTopic)
