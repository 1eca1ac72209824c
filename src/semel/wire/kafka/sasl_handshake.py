"""SaslHandshake (17), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, array, field


class SaslHandshakeResponse(Response):
    KEY = 17
    error_code: int = field("int16", default=0)
    mechanisms: Sequence[str] = array("string")


class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    KEY = 17
    mechanism: str = field("string")
