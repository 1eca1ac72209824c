"""SaslAuthenticate (36), versions 0 to 2: one message of a login, and the answer to it.

Since version 1 the answer says how long the login is valid. The answer to a failed login is delayed, and then the
connection ends, so that passwords can only be guessed slowly. The answer does not wait for the disk, because it reports
no change. No password, token or proof that a client sends here may appear in an event or an error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from semel.log.broker.apis.answers import answer, answer_in_steps, decoded
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Serving
from semel.log.security.login import Login
from semel.wire import kafka
from semel.wire.refusals import ILLEGAL_SASL_STATE, Refused
from semel.wire.steps import Steps
from semel.wire.versions import SASL_AUTHENTICATE

# Every client may log in.
API: Final = Api(SASL_AUTHENTICATE, (0, 2), rights=(), standby=Here.SERVES, before_login=True)


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.sasl_authenticate.SaslAuthenticateRequest, body)
    login = exchange.login
    try:
        if login is None:
            raise Refused(ILLEGAL_SASL_STATE, "this listener asks for no login")
        token = yield from login.respond(request.auth_bytes)
    except Refused as refused:
        _refuse(broker, exchange, refused)
        return
    lifetime_ms = _note_login(broker, exchange, login) if login.is_finished else 0
    response = kafka.sasl_authenticate.SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
    yield from answer_in_steps(exchange, response)


def _note_login(broker: Serving, exchange: Exchange, login: Login) -> int:
    """The client is logged in; return for how many milliseconds."""
    lifetime_ms = broker.limits.login_lifetime_ms
    if login.proven_until_seconds is not None:
        # Never 0, which would mean for ever.
        left_ms = max(int(login.proven_until_seconds * 1000) - broker.clock.now_ms(), 1)
        lifetime_ms = min(lifetime_ms or left_ms, left_ms)
    if lifetime_ms:
        login.expires_at_ms = broker.clock.steady_ms() + lifetime_ms
    broker.metrics.logins += 1
    if login.repeats_nonce:
        broker.runtime.note_repeated_nonce(exchange.client_host, login.principal.name)
    exchange.note_login()
    return lifetime_ms


def _refuse(broker: Serving, exchange: Exchange, refusal: Refused) -> None:
    broker.metrics.refused_logins += 1
    user = "" if exchange.login is None else exchange.login.claimed_user
    broker.runtime.events.tell(logging.WARNING, "login_refused", peer=exchange.peer, user=user, reason=refusal)
    exchange.end_connection()
    response = kafka.sasl_authenticate.SaslAuthenticateResponse(
        error_code=refusal.error, error_message=refusal.message, auth_bytes=b""
    )
    delay_seconds = broker.limits.failed_login_delay_ms / 1000
    asyncio.get_running_loop().call_later(delay_seconds, answer, exchange, response)
