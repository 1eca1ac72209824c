"""CreateDelegationToken (38), versions 1 to 3.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class CreateDelegationTokenResponse(Response):
    KEY = 38
    error_code: int = field("int16", default=0)
    principal_type: str = field("string")
    principal_name: str = field("string")
    token_requester_principal_type: str = field("string", since=3, default="")
    token_requester_principal_name: str = field("string", since=3, default="")
    issue_timestamp_ms: int = field("int64")
    expiry_timestamp_ms: int = field("int64")
    max_timestamp_ms: int = field("int64")
    token_id: str = field("string")
    hmac: bytes = field("bytes")
    throttle_time_ms: int = field("int32", default=0)


class CreatableRenewers(Struct):
    principal_type: str = field("string")
    principal_name: str = field("string")


class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    KEY = 38
    owner_principal_type: str | None = field("string", since=3, null_since=3, default="")
    owner_principal_name: str | None = field("string", since=3, null_since=3, default="")
    renewers: Sequence[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = field("int64")
