"""ListTransactions (66), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class TransactionState(Struct):
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    transaction_state: str = field("string")


class ListTransactionsResponse(Response):
    KEY = 66
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    unknown_state_filters: Sequence[str] = array("string")
    transaction_states: Sequence[TransactionState] = array(TransactionState)


class ListTransactionsRequest(Request[ListTransactionsResponse]):
    KEY = 66
    state_filters: Sequence[str] = array("string")
    producer_id_filters: Sequence[int] = array("int64")
    duration_filter: int = field("int64", since=1, default=-1)
    transactional_id_pattern: str | None = field("string", since=2, null_since=2, default=None)
