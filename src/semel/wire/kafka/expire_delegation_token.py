"""ExpireDelegationToken (40), versions 1 to 2.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class ExpireDelegationTokenResponse(Response):
    KEY = 40
    error_code: int = field("int16", default=0)
    expiry_timestamp_ms: int = field("int64")
    throttle_time_ms: int = field("int32", default=0)


class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    KEY = 40
    hmac: bytes = field("bytes")
    expiry_time_period_ms: int = field("int64")
