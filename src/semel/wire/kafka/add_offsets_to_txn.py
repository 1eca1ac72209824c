"""AddOffsetsToTxn (25), versions 0 to 4, as `make messages` writes it."""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class AddOffsetsToTxnResponse(Response):
    KEY = 25
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)


class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    KEY = 25
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    group_id: str = field("string")
