"""DescribeDelegationToken (41), versions 1 to 3.

`make messages` writes this file from Kafka's own definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field("string")
    principal_name: str = field("string")


class DescribedDelegationToken(Struct):
    principal_type: str = field("string")
    principal_name: str = field("string")
    token_requester_principal_type: str = field("string", since=3, default="")
    token_requester_principal_name: str = field("string", since=3, default="")
    issue_timestamp: int = field("int64")
    expiry_timestamp: int = field("int64")
    max_timestamp: int = field("int64")
    token_id: str = field("string")
    hmac: bytes = field("bytes")
    renewers: Sequence[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Response):
    KEY = 41
    error_code: int = field("int16", default=0)
    tokens: Sequence[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = field("int32", default=0)


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field("string")
    principal_name: str = field("string")


class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    KEY = 41
    owners: Sequence[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, null_since=0)
