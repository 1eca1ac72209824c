"""ListConfigResources (74), versions 0 to 1, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ConfigResource(Struct):
    resource_name: str = field("string")
    resource_type: int = field("int8", since=1, default=16)


class ListConfigResourcesResponse(Response):
    KEY = 74
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    config_resources: Sequence[ConfigResource] = array(ConfigResource)


class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    KEY = 74
    resource_types: Sequence[int] = array("int8", since=1, default=())
