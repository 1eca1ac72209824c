"""AddRaftVoter (80), versions 0 to 1.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AddRaftVoterResponse(Response):
    KEY = 80
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class Listener(Struct):
    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")


class AddRaftVoterRequest(Request[AddRaftVoterResponse]):
    KEY = 80
    cluster_id: str | None = field("string", null_since=0)
    timeout_ms: int = field("int32")
    voter_id: int = field("int32")
    voter_directory_id: bytes = field("uuid")
    listeners: Sequence[Listener] = array(Listener)
    ack_when_committed: bool = field("bool", since=1, default=True)
