"""SaslAuthenticate (36), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class SaslAuthenticateResponse(Response):
    KEY = 36
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    auth_bytes: bytes = field("bytes")
    session_lifetime_ms: int = field("int64", since=1, default=0)


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    KEY = 36
    auth_bytes: bytes = field("bytes")
