"""AlterUserScramCredentials (51), versions 0 to 0, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AlterUserScramCredentialsResult(Struct):
    user: str = field("string")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)


class AlterUserScramCredentialsResponse(Response):
    KEY = 51
    throttle_time_ms: int = field("int32", default=0)
    results: Sequence[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)


class ScramCredentialDeletion(Struct):
    name: str = field("string")
    mechanism: int = field("int8")


class ScramCredentialUpsertion(Struct):
    name: str = field("string")
    mechanism: int = field("int8")
    iterations: int = field("int32")
    salt: bytes = field("bytes")
    salted_password: bytes = field("bytes")


class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    KEY = 51
    deletions: Sequence[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: Sequence[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)
