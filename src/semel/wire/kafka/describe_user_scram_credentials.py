"""DescribeUserScramCredentials (50), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class CredentialInfo(Struct):
    mechanism: int = field("int8")
    iterations: int = field("int32")


class DescribeUserScramCredentialsResult(Struct):
    user: str = field("string")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    credential_infos: Sequence[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response):
    KEY = 50
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    results: Sequence[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


class UserName(Struct):
    name: str = field("string")


class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    KEY = 50
    users: Sequence[UserName] | None = array(UserName, null_since=0)
