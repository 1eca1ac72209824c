"""DescribeTransactions (65), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class TopicData(Struct):
    topic: str = field("string")
    partitions: Sequence[int] = array("int32")


class TransactionState(Struct):
    error_code: int = field("int16", default=0)
    transactional_id: str = field("string")
    transaction_state: str = field("string")
    transaction_timeout_ms: int = field("int32")
    transaction_start_time_ms: int = field("int64")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    topics: Sequence[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response):
    KEY = 65
    throttle_time_ms: int = field("int32", default=0)
    transaction_states: Sequence[TransactionState] = array(TransactionState)


class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    KEY = 65
    transactional_ids: Sequence[str] = array("string")
