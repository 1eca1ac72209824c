"""ListGroups (16), versions 0 to 5, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ListedGroup(Struct):
    group_id: str = field("string")
    protocol_type: str = field("string")
    group_state: str = field("string", since=4, default="")
    group_type: str = field("string", since=5, default="")


class ListGroupsResponse(Response):
    KEY = 16
    throttle_time_ms: int = field("int32", since=1, default=0)
    error_code: int = field("int16", default=0)
    groups: Sequence[ListedGroup] = array(ListedGroup)


class ListGroupsRequest(Request[ListGroupsResponse]):
    KEY = 16
    states_filter: Sequence[str] = array("string", since=4, default=())
    types_filter: Sequence[str] = array("string", since=5, default=())
