"""EndTxn (26), versions 0 to 5, as `make messages` writes it."""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class EndTxnResponse(Response):
    KEY = 26
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    producer_id: int = field("int64", since=5, default=-1)
    producer_epoch: int = field("int16", since=5, default=-1)


class EndTxnRequest(Request[EndTxnResponse]):
    KEY = 26
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    committed: bool = field("bool")
