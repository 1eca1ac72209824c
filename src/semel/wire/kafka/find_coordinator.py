"""FindCoordinator (10), versions 0 to 6, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class Coordinator(Struct):
    key: str = field("string", since=4)
    node_id: int = field("int32", since=4)
    host: str = field("string", since=4)
    port: int = field("int32", since=4)
    error_code: int = field("int16", since=4, default=0)
    error_message: str | None = field("string", since=4, null_since=4, default=None)


class FindCoordinatorResponse(Response):
    KEY = 10
    throttle_time_ms: int = field("int32", since=1, default=0)
    error_code: int = field("int16", until=4, default=0)
    error_message: str | None = field("string", since=1, until=4, null_since=1, null_until=4, default=None)
    node_id: int = field("int32", until=4, default=0)
    host: str = field("string", until=4, default="")
    port: int = field("int32", until=4, default=0)
    coordinators: Sequence[Coordinator] = array(Coordinator, since=4, default=())


class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    KEY = 10
    key: str = field("string", until=4, default="")
    key_type: int = field("int8", since=1, default=0)
    coordinator_keys: Sequence[str] = array("string", since=4, default=())
