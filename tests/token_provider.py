"""An identity provider for tests: it has keys, and signs tokens with them."""

import json
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from semel.log.security.tokens import TokenSettings

ISSUER: Final = "https://id.example.org"
AUDIENCE: Final = "semel"
HOUR_SECONDS: Final = 3_600
# It takes a tenth of a second to make one.
_RSA: Final = rsa.generate_private_key(65_537, 2_048)


class Provider:
    """Signs with a key of its own, under a name that tests may change."""

    def __init__(self, kid: str = "first", algorithm: str = "RS256", **of_key: str) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.key: Any = ec.generate_private_key(ec.SECP256R1()) if algorithm.startswith("E") else _RSA
        self._of_key = of_key

    def public(self) -> dict[str, Any]:
        """The key as a provider publishes it."""
        kind: Any = ECAlgorithm if self.algorithm.startswith("E") else RSAAlgorithm
        return {**kind.to_jwk(self.key.public_key(), as_dict=True), "kid": self.kid, **self._of_key}

    def key_set(self, *others: "Provider") -> bytes:
        return json.dumps({"keys": [one.public() for one in (self, *others)]}).encode()

    def settings(self, directory: Path, **more: Any) -> TokenSettings:
        """What a broker is told that takes these tokens."""
        file = directory / "keys.json"
        file.write_bytes(self.key_set())
        return TokenSettings(str(file), ISSUER, AUDIENCE, **more)

    def token(self, user: str = "alice", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token that is good for an hour; a claim that is None is left out."""
        all_claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": time.time() + HOUR_SECONDS, **claims}
        payload = {name: value for name, value in all_claims.items() if value is not None}
        named = {name: value for name, value in {"kid": self.kid, **(headers or {})}.items() if value is not None}
        return jwt.encode(payload, self.key, self.algorithm, headers=named)


# What `current` gives, for a client that is told the name of a function.
CURRENT: Final = {"token": ""}


def current() -> str:
    return CURRENT["token"]


def bearer(token: str, acting: str = "") -> bytes:
    """The message of a client, as those of Kafka write it."""
    return f"n,{acting},\x01auth=Bearer {token}\x01\x01".encode()
