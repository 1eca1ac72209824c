"""LeaveGroup (13), versions 0 to 5, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class MemberResponse(Struct):
    member_id: str = field("string", since=3)
    group_instance_id: str | None = field("string", since=3, null_since=3)
    error_code: int = field("int16", since=3, default=0)


class LeaveGroupResponse(Response):
    KEY = 13
    throttle_time_ms: int = field("int32", since=1, default=0)
    error_code: int = field("int16", default=0)
    members: Sequence[MemberResponse] = array(MemberResponse, since=3, default=())


class MemberIdentity(Struct):
    member_id: str = field("string", since=3)
    group_instance_id: str | None = field("string", since=3, null_since=3, default=None)
    reason: str | None = field("string", since=5, null_since=5, default=None)


class LeaveGroupRequest(Request[LeaveGroupResponse]):
    KEY = 13
    group_id: str = field("string")
    member_id: str = field("string", until=3, default="")
    members: Sequence[MemberIdentity] = array(MemberIdentity, since=3, default=())
