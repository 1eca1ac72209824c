"""DeleteTopics (20), versions 1 to 6, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class DeletableTopicResult(Struct):
    name: str | None = field("string", null_since=6)
    topic_id: bytes = field("uuid", since=6, default=NO_ID)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", since=5, null_since=5, default=None)


class DeleteTopicsResponse(Response):
    KEY = 20
    throttle_time_ms: int = field("int32", since=1, default=0)
    responses: Sequence[DeletableTopicResult] = array(DeletableTopicResult)


class DeleteTopicState(Struct):
    name: str | None = field("string", since=6, null_since=6, default=None)
    topic_id: bytes = field("uuid", since=6)


class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    KEY = 20
    topics: Sequence[DeleteTopicState] = array(DeleteTopicState, since=6, default=())
    topic_names: Sequence[str] = array("string", until=6, default=())
    timeout_ms: int = field("int32")
