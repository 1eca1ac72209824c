"""Produce (0), versions 3 to 13, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field("int32", since=8)
    batch_index_error_message: str | None = field("string", since=8, null_since=8, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field("int32", since=10, default=-1)
    leader_epoch: int = field("int32", since=10, default=-1)


class PartitionProduceResponse(Struct):
    index: int = field("int32")
    error_code: int = field("int16", default=0)
    base_offset: int = field("int64")
    log_append_time_ms: int = field("int64", since=2, default=-1)
    log_start_offset: int = field("int64", since=5, default=-1)
    record_errors: Sequence[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, default=())
    error_message: str | None = field("string", since=8, null_since=8, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, since=10, tag=0, default=None)


class TopicProduceResponse(Struct):
    name: str = field("string", until=13, default="")
    topic_id: bytes = field("uuid", since=13, default=NO_ID)
    partition_responses: Sequence[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = field("int32", since=10)
    host: str = field("string", since=10)
    port: int = field("int32", since=10)
    rack: str | None = field("string", since=10, null_since=10, default=None)


class ProduceResponse(Response):
    KEY = 0
    responses: Sequence[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = field("int32", since=1, default=0)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0, default=())


class PartitionProduceData(Struct):
    index: int = field("int32")
    records: bytes | None = field("records", null_since=0)


class TopicProduceData(Struct):
    name: str = field("string", until=13, default="")
    topic_id: bytes = field("uuid", since=13, default=NO_ID)
    partition_data: Sequence[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request[ProduceResponse]):
    KEY = 0
    transactional_id: str | None = field("string", since=3, null_since=3, default=None)
    acks: int = field("int16")
    timeout_ms: int = field("int32")
    topic_data: Sequence[TopicProduceData] = array(TopicProduceData)
