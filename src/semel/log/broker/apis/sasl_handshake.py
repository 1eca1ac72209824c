"""SaslHandshake (17), versions 0 and 1: the client says by which mechanism it will log in.

In version 0 the messages of the login would follow without Kafka's headers. No current client needs that, so version 0
is refused with UNSUPPORTED_VERSION, and the connection ends. The answer does not wait for the disk, because it reports
no change.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, decoded
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.refusals import ILLEGAL_SASL_STATE, NONE, UNSUPPORTED_VERSION, Refused
from semel.wire.steps import Steps
from semel.wire.versions import SASL_HANDSHAKE

# Every client may log in.
# Without version 0, librdkafka assumes that the broker has no SASL; a request of version 0 is refused.
API: Final = Api(SASL_HANDSHAKE, (0, 1), rights=(), standby=Here.SERVES, before_login=True)

_WITH_HEADERS_FROM: Final = 1


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.sasl_handshake.SaslHandshakeRequest, body)
    error = _choose(exchange, request)
    if error != NONE:
        exchange.end_connection()
    mechanisms = () if exchange.login is None else exchange.login.mechanisms
    response = kafka.sasl_handshake.SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
    yield from answer_in_steps(exchange, response)


def _choose(exchange: Exchange, request: kafka.sasl_handshake.SaslHandshakeRequest) -> int:
    if exchange.version < _WITH_HEADERS_FROM:
        return UNSUPPORTED_VERSION
    if exchange.login is None:
        return ILLEGAL_SASL_STATE
    try:
        exchange.login.choose(request.mechanism)
    except Refused as refused:
        return refused.error
    return NONE
