"""UpdateFeatures (57), versions 0 to 2.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class UpdatableFeatureResult(Struct):
    feature: str = field("string")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class UpdateFeaturesResponse(Response):
    KEY = 57
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    results: Sequence[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=2, default=())


class FeatureUpdateKey(Struct):
    feature: str = field("string")
    max_version_level: int = field("int16")
    allow_downgrade: bool = field("bool", until=1, default=False)
    upgrade_type: int = field("int8", since=1, default=1)


class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    KEY = 57
    timeout_ms: int = field("int32", default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = field("bool", since=1, default=False)
