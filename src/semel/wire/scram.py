"""What is alike on both sides of a login by SCRAM (RFC 5802): its mechanisms, and the keys derived from a password."""

import hashlib
import hmac
from enum import IntEnum
from typing import Final, NamedTuple

# The length of the salts that semel makes itself.
SALT_BYTES: Final = 32


class Mechanism(IntEnum):
    """The SASL mechanisms, with the protocol's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The hash function, as hashlib calls it."""
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        return 32 if self is Mechanism.SCRAM_SHA_256 else 64


class Credential(NamedTuple):
    """A user's keys for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential_of(mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential for a salted password."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted_password, b"Server Key", mechanism.digest), iterations)


def salted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """SCRAM's salted password; computing it takes some milliseconds on purpose. The password is not prepared with
    SASLprep, nor do Apache Kafka's tools and librdkafka do so.
    """
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
