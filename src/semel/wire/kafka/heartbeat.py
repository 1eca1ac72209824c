"""Heartbeat (12), versions 0 to 4, as `make messages` writes it."""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class HeartbeatResponse(Response):
    KEY = 12
    throttle_time_ms: int = field("int32", since=1, default=0)
    error_code: int = field("int16", default=0)


class HeartbeatRequest(Request[HeartbeatResponse]):
    KEY = 12
    group_id: str = field("string")
    generation_id: int = field("int32")
    member_id: str = field("string")
    group_instance_id: str | None = field("string", since=3, null_since=3, default=None)
