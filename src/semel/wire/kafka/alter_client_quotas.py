"""AlterClientQuotas (49), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ResponseEntityData(Struct):
    entity_type: str = field("string")
    entity_name: str | None = field("string", null_since=0)


class ResponseEntryData(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    entity: Sequence[ResponseEntityData] = array(ResponseEntityData)


class AlterClientQuotasResponse(Response):
    KEY = 49
    throttle_time_ms: int = field("int32", default=0)
    entries: Sequence[ResponseEntryData] = array(ResponseEntryData)


class RequestEntityData(Struct):
    entity_type: str = field("string")
    entity_name: str | None = field("string", null_since=0)


class OpData(Struct):
    key: str = field("string")
    value: float = field("float64")
    remove: bool = field("bool")


class RequestEntryData(Struct):
    entity: Sequence[RequestEntityData] = array(RequestEntityData)
    ops: Sequence[OpData] = array(OpData)


class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    KEY = 49
    entries: Sequence[RequestEntryData] = array(RequestEntryData)
    validate_only: bool = field("bool")
