"""GetTelemetrySubscriptions (71), versions 0 to 0.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, array, field


class GetTelemetrySubscriptionsResponse(Response):
    KEY = 71
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    client_instance_id: bytes = field("uuid")
    subscription_id: int = field("int32")
    accepted_compression_types: Sequence[int] = array("int8")
    push_interval_ms: int = field("int32")
    telemetry_max_bytes: int = field("int32")
    delta_temporality: bool = field("bool")
    requested_metrics: Sequence[str] = array("string")


class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    KEY = 71
    client_instance_id: bytes = field("uuid")
