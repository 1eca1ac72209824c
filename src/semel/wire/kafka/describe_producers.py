"""DescribeProducers (61), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ProducerState(Struct):
    producer_id: int = field("int64")
    producer_epoch: int = field("int32")
    last_sequence: int = field("int32", default=-1)
    last_timestamp: int = field("int64", default=-1)
    coordinator_epoch: int = field("int32")
    current_txn_start_offset: int = field("int64", default=-1)


class PartitionResponse(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    active_producers: Sequence[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    name: str = field("string")
    partitions: Sequence[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Response):
    KEY = 61
    throttle_time_ms: int = field("int32", default=0)
    topics: Sequence[TopicResponse] = array(TopicResponse)


class TopicRequest(Struct):
    name: str = field("string")
    partition_indexes: Sequence[int] = array("int32")


class DescribeProducersRequest(Request[DescribeProducersResponse]):
    KEY = 61
    topics: Sequence[TopicRequest] = array(TopicRequest)
