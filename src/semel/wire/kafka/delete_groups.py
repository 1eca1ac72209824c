"""DeleteGroups (42), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DeletableGroupResult(Struct):
    group_id: str = field("string")
    error_code: int = field("int16", default=0)


class DeleteGroupsResponse(Response):
    KEY = 42
    throttle_time_ms: int = field("int32", default=0)
    results: Sequence[DeletableGroupResult] = array(DeletableGroupResult)


class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    KEY = 42
    groups_names: Sequence[str] = array("string")
