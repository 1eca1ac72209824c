"""AddPartitionsToTxn (24), versions 0 to 5, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field("int32")
    partition_error_code: int = field("int16")


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field("string")
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field("string", since=4)
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, since=4)


class AddPartitionsToTxnResponse(Response):
    KEY = 24
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", since=4, default=0)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4, default=())
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=4, default=()
    )


class AddPartitionsToTxnTopic(Struct):
    name: str = field("string")
    partitions: Sequence[int] = array("int32")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field("string", since=4)
    producer_id: int = field("int64", since=4)
    producer_epoch: int = field("int16", since=4)
    verify_only: bool = field("bool", since=4, default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)


class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    KEY = 24
    transactions: Sequence[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4, default=())
    v3_and_below_transactional_id: str = field("string", until=4, default="")
    v3_and_below_producer_id: int = field("int64", until=4, default=0)
    v3_and_below_producer_epoch: int = field("int16", until=4, default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=4, default=())
