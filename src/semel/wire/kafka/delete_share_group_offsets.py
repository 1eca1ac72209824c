"""DeleteShareGroupOffsets (92), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field("string")
    topic_id: bytes = field("uuid")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class DeleteShareGroupOffsetsResponse(Response):
    KEY = 92
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field("string")


class DeleteShareGroupOffsetsRequest(Request[DeleteShareGroupOffsetsResponse]):
    KEY = 92
    group_id: str = field("string")
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)
