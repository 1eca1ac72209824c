"""DescribeClientQuotas (48), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class EntityData(Struct):
    entity_type: str = field("string")
    entity_name: str | None = field("string", null_since=0)


class ValueData(Struct):
    key: str = field("string")
    value: float = field("float64")


class EntryData(Struct):
    entity: Sequence[EntityData] = array(EntityData)
    values: Sequence[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response):
    KEY = 48
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    entries: Sequence[EntryData] | None = array(EntryData, null_since=0)


class ComponentData(Struct):
    entity_type: str = field("string")
    match_type: int = field("int8")
    match: str | None = field("string", null_since=0)


class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    KEY = 48
    components: Sequence[ComponentData] = array(ComponentData)
    strict: bool = field("bool")
