"""SyncGroup (14), versions 0 to 5, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class SyncGroupResponse(Response):
    KEY = 14
    throttle_time_ms: int = field("int32", since=1, default=0)
    error_code: int = field("int16", default=0)
    protocol_type: str | None = field("string", since=5, null_since=5, default=None)
    protocol_name: str | None = field("string", since=5, null_since=5, default=None)
    assignment: bytes = field("bytes")


class SyncGroupRequestAssignment(Struct):
    member_id: str = field("string")
    assignment: bytes = field("bytes")


class SyncGroupRequest(Request[SyncGroupResponse]):
    KEY = 14
    group_id: str = field("string")
    generation_id: int = field("int32")
    member_id: str = field("string")
    group_instance_id: str | None = field("string", since=3, null_since=3, default=None)
    protocol_type: str | None = field("string", since=5, null_since=5, default=None)
    protocol_name: str | None = field("string", since=5, null_since=5, default=None)
    assignments: Sequence[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)
