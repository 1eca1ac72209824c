"""The broker's side of SCRAM (RFC 5802): two messages of a client, two answers, and then a proven user.

    client: n,,n=app,r=<its nonce>              broker: r=<both nonces>,s=<salt>,i=<iterations>
    client: c=biws,r=<both nonces>,p=<proof>    broker: v=<its own proof>

An exchange is over after the second message, and `user` has a name only if the proof was right. An unknown user gets an
answer like any other, from made-up keys, and fails at the proof. Nothing here may read a clock, a socket or a random
number, and no message may say which part of a proof was wrong.

In its second message, librdkafka before 2.6.1 puts its nonce in front of both nonces once more, and proves what it
sends. Apache Kafka before 4.0 took that form, and so does this file: both forms end with the broker's nonce, so that no
message of another exchange fits.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from semel.log.core.users import Users
from semel.wire.refusals import SASL_AUTHENTICATION_FAILED, Refused
from semel.wire.scram import Credential, Mechanism

_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]{1,1024}"
# The name of a user, in which a comma is =2C and an equals sign =3D.
_NAME: Final = r"(?:[^,=\x00]|=2C|=3D)+"
# No extension is supported, and an unsupported mandatory one ("m=") must be refused.
_EXTENSIONS: Final = r"(?:,[A-Za-ln-z]=[^,\x00]+)*"
_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<acting>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


def failed(mechanism: str) -> Refused:
    """The error for every failed login, whatever the reason."""
    return Refused(SASL_AUTHENTICATION_FAILED, f"invalid credentials with SASL mechanism {mechanism}")


class ScramExchange:
    """One login by SCRAM."""

    def __init__(self, mechanism: Mechanism, users: Users, nonce: str) -> None:
        """`nonce` is the broker's, and must never have been used before."""
        # The user who has been proven.
        self.user: str | None = None
        # The user whom the client names.
        self.name = ""
        self._mechanism = mechanism
        self._users = users
        self._own_nonce = nonce
        # Whether the client has sent its own nonce twice, as librdkafka before 2.6.1 does.
        self.repeats_nonce = False
        self._credential: Credential | None = None
        self._header = ""
        self._nonce = self._client_nonce = ""
        self._first_messages = ""
        self._is_over = False

    def respond(self, message: bytes) -> bytes:
        """The answer to the client's next message; Refused if the login fails."""
        if self._is_over:
            raise self._malformed("a message after the last one")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            self._is_over = True
            raise self._malformed("a message that is not UTF-8") from None
        if self._credential is None:
            return self._first(text)
        self._is_over = True
        return self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            self._is_over = True
            raise self._malformed("a first message that is not valid, or asks for an unsupported feature")
        self.name = unescaped(match["name"])
        if match["acting"] is not None and unescaped(match["acting"]) != self.name:
            self._is_over = True
            raise self._malformed("a user who wants to act as another one")
        self._header, self._client_nonce = match["header"], match["nonce"]
        self._nonce = self._client_nonce + self._own_nonce
        self._credential = self._users.credential_for(self.name, self._mechanism)
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._first_messages = f"{match['bare']},{answer}"
        return answer.encode()

    def _final(self, text: str, credential: Credential) -> bytes:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise self._malformed("a second message that cannot be read")
        # If an attacker had changed the channel binding, this header would differ.
        nonces = (self._nonce, self._client_nonce + self._nonce)
        if _decoded(match["header"]) != self._header.encode() or match["nonce"] not in nonces:
            raise failed(self._mechanism.sasl_name)
        self.repeats_nonce = match["nonce"] != self._nonce
        dialogue = f"{self._first_messages},{match['bare']}".encode()
        digest = self._mechanism.digest
        signature = hmac.digest(credential.stored_key, dialogue, digest)
        proof = _decoded(match["proof"]).ljust(len(signature), b"\0")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_proven = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        is_current = self._users.is_current(self.name, self._mechanism, credential)
        if not (is_proven and is_current and len(proof) == len(signature)):
            raise failed(self._mechanism.sasl_name)
        self.user = self.name
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, dialogue, digest))

    def _malformed(self, what: str) -> Refused:
        return Refused(SASL_AUTHENTICATION_FAILED, f"{self._mechanism.sasl_name}: {what}")


def unescaped(name: str) -> str:
    """A name as it is, from its form in a message, in which a comma is =2C and an equals sign =3D."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
