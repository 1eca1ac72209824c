"""ApiVersions (18), versions 0 to 4: what a client may ask.

A client that asks in a version nobody knows yet gets error 35 in the shape of version 0, with the versions of this one
API, so that it can ask again. No feature is finalized yet: `transaction.version` will be, once transactions are there.
"""

from typing import TYPE_CHECKING

from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.versions import ANNOUNCED, API_VERSIONS, is_announced

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


def handle(broker: "Broker", exchange: "Exchange", body: memoryview) -> None:
    version = exchange.version
    if not is_announced(API_VERSIONS, version):
        _reply(exchange, 0, ErrorCode.UNSUPPORTED_VERSION, [API_VERSIONS])
        return
    messages.decode_request(API_VERSIONS, version, body)
    _reply(exchange, version, ErrorCode.NONE, list(ANNOUNCED))


def _reply(exchange: "Exchange", version: int, error: int, api_keys: list[int]) -> None:
    answer = messages.build_response(
        API_VERSIONS,
        version,
        error_code=error,
        api_keys=[
            {"api_key": key, "min_version": ANNOUNCED[key].min, "max_version": ANNOUNCED[key].max} for key in api_keys
        ],
    )
    exchange.reply((messages.encode_response(API_VERSIONS, version, exchange.correlation_id, answer),))
