"""CreateAcls (30), versions 1 to 3, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AclCreationResult(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class CreateAclsResponse(Response):
    KEY = 30
    throttle_time_ms: int = field("int32", default=0)
    results: Sequence[AclCreationResult] = array(AclCreationResult)


class AclCreation(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    resource_pattern_type: int = field("int8", since=1, default=3)
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class CreateAclsRequest(Request[CreateAclsResponse]):
    KEY = 30
    creations: Sequence[AclCreation] = array(AclCreation)
