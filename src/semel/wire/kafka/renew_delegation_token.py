"""RenewDelegationToken (39), versions 1 to 2.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class RenewDelegationTokenResponse(Response):
    KEY = 39
    error_code: int = field("int16", default=0)
    expiry_timestamp_ms: int = field("int64")
    throttle_time_ms: int = field("int32", default=0)


class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    KEY = 39
    hmac: bytes = field("bytes")
    renew_period_ms: int = field("int64")
