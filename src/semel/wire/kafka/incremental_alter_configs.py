"""IncrementalAlterConfigs (44), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AlterConfigsResourceResponse(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    resource_type: int = field("int8")
    resource_name: str = field("string")


class IncrementalAlterConfigsResponse(Response):
    KEY = 44
    throttle_time_ms: int = field("int32", default=0)
    responses: Sequence[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class AlterableConfig(Struct):
    name: str = field("string")
    config_operation: int = field("int8")
    value: str | None = field("string", null_since=0)


class AlterConfigsResource(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: Sequence[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    KEY = 44
    resources: Sequence[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = field("bool")
