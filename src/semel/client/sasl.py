"""The login to a broker: PLAIN, SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628), as steps of bytes without a socket.

A mechanism is a generator: it yields the bytes to send, and the caller sends the broker's answer into it. With SCRAM
the broker also proves that it knows the password. Names and passwords are sent as UTF-8, without the SASLprep that the
RFC asks for: Apache Kafka stores its keys without it, so a password that SASLprep changes would be wrong everywhere.
This file must never put a password in an error.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Generator
from importlib import import_module
from typing import Final

from semel.client.errors import AuthenticationFailed
from semel.client.settings import ClientSettings

# RFC 7677 and Java's client ask for at least this many: a false broker that asked for one iteration could find the
# password from the client's proof.
ITERATIONS_MIN: Final = 4_096
# A broker that asks for many more would make the client compute for minutes.
ITERATIONS_MAX: Final = 1_000_000
_ITERATIONS: Final = re.compile(r"[1-9][0-9]{0,9}")

Steps = Generator[bytes, bytes, None]


def steps(settings: ClientSettings) -> Steps:
    """The conversation of the mechanism in the settings."""
    if settings.sasl_token_callback is not None:
        return _bearer(_token(settings.sasl_token_callback))
    user, password = settings.sasl_username or "", settings.sasl_password or ""
    if settings.sasl_mechanism == "PLAIN":
        return _plain(user, password)
    return _scram(user, password, settings.sasl_mechanism.removeprefix("SCRAM-").replace("-", "").lower())


def _plain(user: str, password: str) -> Steps:
    yield f"\0{user}\0{password}".encode()


def _bearer(token: str) -> Steps:
    yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def _token(callback: str) -> str:
    """The token that the user's function returns. An error of it may contain a secret, so the message has only its
    type.
    """
    module, _, name = callback.partition(":")
    try:
        token = getattr(import_module(module), name)()
    except Exception as error:
        raise AuthenticationFailed(f"the function {callback} gave no token: {type(error).__name__}") from None
    if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9_.=-]+", token):
        raise AuthenticationFailed(f"the function {callback} gave something else than a token")
    return token


def _scram(user: str, password: str, digest: str) -> Steps:
    nonce = secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode(errors="replace")
    challenge = _fields(server_first)
    try:
        salt, count = base64.b64decode(challenge["s"], validate=True), challenge["i"]
    except (KeyError, ValueError):
        raise AuthenticationFailed("the broker's first message of SCRAM cannot be read") from None
    # A client has to refuse a mandatory extension ("m=") that it does not know.
    if not salt or _ITERATIONS.fullmatch(count) is None or "m" in challenge:
        raise AuthenticationFailed("the broker's first message of SCRAM cannot be read")
    iterations = int(count)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"the broker's first message of SCRAM asks for {iterations} iterations, and {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX} are safe"
        )
    if not challenge.get("r", "").startswith(nonce) or challenge["r"] == nonce:
        raise AuthenticationFailed("the broker's first message of SCRAM does not answer ours")
    final = f"c=biws,r={challenge['r']}"
    dialogue = f"{first},{server_first},{final}".encode()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), dialogue, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), dialogue, digest)
    shown = _fields(server_final).get("v", "")
    if not hmac.compare_digest(shown.encode(), base64.b64encode(expected)):
        raise AuthenticationFailed("the broker could not prove that it knows the password")


def _fields(message: str) -> dict[str, str]:
    return {field[0]: field[2:] for field in message.split(",") if field[1:2] == "="}
