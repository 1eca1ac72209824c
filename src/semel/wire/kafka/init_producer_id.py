"""InitProducerId (22), versions 0 to 6, as `make messages` writes it."""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class InitProducerIdResponse(Response):
    KEY = 22
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    producer_id: int = field("int64", default=-1)
    producer_epoch: int = field("int16")
    ongoing_txn_producer_id: int = field("int64", since=6, default=-1)
    ongoing_txn_producer_epoch: int = field("int16", since=6, default=-1)


class InitProducerIdRequest(Request[InitProducerIdResponse]):
    KEY = 22
    transactional_id: str | None = field("string", null_since=0)
    transaction_timeout_ms: int = field("int32")
    producer_id: int = field("int64", since=3, default=-1)
    producer_epoch: int = field("int16", since=3, default=-1)
    enable2_pc: bool = field("bool", since=6, default=False)
    keep_prepared_txn: bool = field("bool", since=6, default=False)
