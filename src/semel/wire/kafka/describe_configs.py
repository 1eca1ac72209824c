"""DescribeConfigs (32), versions 1 to 4, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribeConfigsSynonym(Struct):
    name: str = field("string", since=1)
    value: str | None = field("string", since=1, null_since=0)
    source: int = field("int8", since=1)


class DescribeConfigsResourceResult(Struct):
    name: str = field("string")
    value: str | None = field("string", null_since=0)
    read_only: bool = field("bool")
    config_source: int = field("int8", since=1, default=-1)
    is_sensitive: bool = field("bool")
    synonyms: Sequence[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1)
    config_type: int = field("int8", since=3, default=0)
    documentation: str | None = field("string", since=3, null_since=0, default="")


class DescribeConfigsResult(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: Sequence[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response):
    KEY = 32
    throttle_time_ms: int = field("int32", default=0)
    results: Sequence[DescribeConfigsResult] = array(DescribeConfigsResult)


class DescribeConfigsResource(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configuration_keys: Sequence[str] | None = array("string", null_since=0)


class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    KEY = 32
    resources: Sequence[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = field("bool", since=1, default=False)
    include_documentation: bool = field("bool", since=3, default=False)
