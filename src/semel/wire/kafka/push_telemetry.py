"""PushTelemetry (72), versions 0 to 0.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class PushTelemetryResponse(Response):
    KEY = 72
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)


class PushTelemetryRequest(Request[PushTelemetryResponse]):
    KEY = 72
    client_instance_id: bytes = field("uuid")
    subscription_id: int = field("int32")
    terminating: bool = field("bool")
    compression_type: int = field("int8")
    metrics: bytes = field("bytes")
