"""UnregisterBroker (64), versions 0 to 0.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class UnregisterBrokerResponse(Response):
    KEY = 64
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class UnregisterBrokerRequest(Request[UnregisterBrokerResponse]):
    KEY = 64
    broker_id: int = field("int32")
