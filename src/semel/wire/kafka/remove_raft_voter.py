"""RemoveRaftVoter (81), versions 0 to 0.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from semel.wire.message import Request, Response, field


class RemoveRaftVoterResponse(Response):
    KEY = 81
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class RemoveRaftVoterRequest(Request[RemoveRaftVoterResponse]):
    KEY = 81
    cluster_id: str | None = field("string", null_since=0)
    voter_id: int = field("int32")
    voter_directory_id: bytes = field("uuid")
