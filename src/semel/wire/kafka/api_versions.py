"""ApiVersions (18), versions 0 to 4, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class ApiVersion(Struct):
    api_key: int = field("int16")
    min_version: int = field("int16")
    max_version: int = field("int16")


class SupportedFeatureKey(Struct):
    name: str = field("string", since=3)
    min_version: int = field("int16", since=3)
    max_version: int = field("int16", since=3)


class FinalizedFeatureKey(Struct):
    name: str = field("string", since=3)
    max_version_level: int = field("int16", since=3)
    min_version_level: int = field("int16", since=3)


class ApiVersionsResponse(Response):
    KEY = 18
    error_code: int = field("int16", default=0)
    api_keys: Sequence[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = field("int32", since=1, default=0)
    supported_features: Sequence[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0, default=())
    finalized_features_epoch: int = field("int64", since=3, tag=1, default=-1)
    finalized_features: Sequence[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2, default=())
    zk_migration_ready: bool = field("bool", since=3, tag=3, default=False)


class ApiVersionsRequest(Request[ApiVersionsResponse]):
    KEY = 18
    client_software_name: str = field("string", since=3, default="")
    client_software_version: str = field("string", since=3, default="")
