"""The login of one connection: its mechanism, its progress, and the user who has logged in.

    nothing --handshake--> a mechanism --tokens--> logged in --handshake--> a mechanism --tokens--> logged in ...

A client that is logged in may log in again over the same connection (KIP-368), by the same mechanism and as the same
user; until then the former login counts. A refusal ends the connection. This file must never use a socket, and never
put a client's password, token or proof into an error.
"""

import hmac
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from semel.log.core.access import ANONYMOUS, USER, Principal
from semel.log.core.users import Users
from semel.log.security.scram import ScramExchange, failed
from semel.log.security.tokens import OAUTHBEARER, Bearer, read_message
from semel.wire.errors import ProtocolError
from semel.wire.refusals import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    Refused,
)
from semel.wire.scram import Credential, Mechanism, credential_of, salted
from semel.wire.steps import Door, Steps, elsewhere

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {mechanism.sasl_name: mechanism for mechanism in Mechanism}
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)


class Tokens(Protocol):
    """Checks the tokens of OAUTHBEARER."""

    def check(self, token: str) -> Bearer:
        """The user whom a token names; Refused if the token is not valid."""


class Login:
    """The progress of one client's login."""

    def __init__(
        self,
        mechanisms: Sequence[str],
        users: Users,
        new_nonce: Callable[[], str],
        tokens: Tokens | None = None,
        hashing: Door | None = None,
    ) -> None:
        """`mechanisms` are those that the listener accepts; `tokens` is needed if OAUTHBEARER is one of them. Logins
        by PLAIN wait for each other at `hashing`.
        """
        self.mechanisms = mechanisms
        self.principal: Principal = ANONYMOUS
        # When the client has to log in again, by the broker's steady clock; None: never.
        self.expires_at_ms: int | None = None
        # When the client's certificate or token expires, in seconds since 1970; None: never.
        self.proven_until_seconds: float | None = None
        self._users = users
        self._new_nonce = new_nonce
        self._tokens = tokens
        self._hashing = hashing or Door(1)
        # The mechanism of the login under way, and that of the last successful login.
        self._chosen: str | None = None
        self._used: str | None = None
        # The user whom the client names, for the event of a refused login.
        self.claimed_user = ""
        self._scram: ScramExchange | None = None
        # Whether the last login by SCRAM had the form of librdkafka before 2.6.1.
        self.repeats_nonce = False

    @property
    def is_over(self) -> bool:
        """Whether the client is logged in."""
        return self._used is not None

    @property
    def is_finished(self) -> bool:
        """Whether the client is logged in, and not in the middle of another login."""
        return self.is_over and self._chosen is None

    def is_valid_at(self, now_ms: int) -> bool:
        """Whether the client is logged in, and its login has not expired."""
        return self.is_over and (self.expires_at_ms is None or now_ms < self.expires_at_ms)

    def choose(self, mechanism: str) -> None:
        """Begin a login by this mechanism."""
        if self._chosen is not None:
            raise Refused(ILLEGAL_SASL_STATE, "a login by another mechanism is under way")
        if mechanism not in self.mechanisms:
            raise Refused(UNSUPPORTED_SASL_MECHANISM, f"the listener takes {', '.join(self.mechanisms)}")
        if self._used not in (None, mechanism):
            raise Refused(SASL_AUTHENTICATION_FAILED, f"the client logged in by {self._used}, and has to do so again")
        self._chosen = mechanism
        if mechanism in SCRAM_MECHANISMS:
            self._scram = ScramExchange(SCRAM_MECHANISMS[mechanism], self._users, self._new_nonce())

    def respond(self, token: bytes) -> Steps[bytes]:
        """The answer to a message of the login; Refused if the login fails."""
        if self._chosen is None:
            raise Refused(ILLEGAL_SASL_STATE, "the client has to choose a mechanism first")
        if self._chosen == OAUTHBEARER and self._tokens is not None:
            self._take_token(token, self._tokens)
            return b""
        if self._scram is None:
            user, password = _read_plain(token)
            self.claimed_user = user
            yield from self._hashing.inside(_check_plain(user, password, self._users))
            self._finish(user)
            return b""
        try:
            answer = self._scram.respond(token)
        finally:
            self.claimed_user = self._scram.name
        if self._scram.user is not None:
            self.repeats_nonce = self._scram.repeats_nonce
            self._finish(self._scram.user)
        return answer

    def _take_token(self, message: bytes, tokens: Tokens) -> None:
        acting, token = read_message(message)
        bearer = tokens.check(token)
        self.claimed_user = bearer.user
        if acting not in (None, bearer.user):
            raise failed(OAUTHBEARER)
        self._finish(bearer.user)
        self.proven_until_seconds = bearer.until_seconds

    def _finish(self, user: str) -> None:
        principal = Principal(USER, user)
        if self.is_over and principal != self.principal:
            raise Refused(SASL_AUTHENTICATION_FAILED, "the user of a connection cannot change")
        self.principal = principal
        self._used, self._chosen, self._scram = self._chosen, None, None


def check_login(login: Login, api_key: int, is_of_a_login: bool, now_ms: int) -> None:
    """ProtocolError for a request that may not be sent before a login, or after it has expired."""
    if not is_of_a_login and not login.is_valid_at(now_ms):
        when = "after its login has expired" if login.is_over else "before a login"
        raise ProtocolError(f"a request of API {api_key} {when}")


def _read_plain(token: bytes) -> tuple[str, str]:
    """The user and the password in a message of PLAIN (RFC 4616)."""
    try:
        acting, user, password = token.decode().split("\0")
    except ValueError:
        raise Refused(SASL_AUTHENTICATION_FAILED, "PLAIN: a message that cannot be read") from None
    if not user or not password or acting not in ("", user):
        raise failed(PLAIN)
    return user, password


def _check_plain(user: str, password: str, users: Users) -> Steps[None]:
    """Refused unless this is the user's password. It takes as long for a user who does not exist."""
    mechanism = users.mechanism_of(user)
    credential = users.credential_for(user, mechanism)

    def stored_keys() -> Credential:
        salted_password = salted(mechanism, password, credential.salt, credential.iterations)
        return credential_of(mechanism, salted_password, credential.salt, credential.iterations)

    stored = yield from elsewhere(stored_keys)
    is_current = users.is_current(user, mechanism, credential)
    if not (hmac.compare_digest(stored.stored_key, credential.stored_key) and is_current):
        raise failed(PLAIN)
