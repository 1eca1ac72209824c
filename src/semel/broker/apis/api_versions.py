"""ApiVersions (18), versions 0 to 4: what a client may ask.

A client that asks in a version nobody knows yet gets error 35 in the shape of version 0, with the versions of this one
API, so that it can ask again. The answer waits for no disk, because it shows nothing of the log. No feature is
finalized yet: `transaction.version` will be, once transactions are there.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from semel.broker.apis.answered import Fields, answer
from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.versions import ANNOUNCED, API_VERSIONS, is_announced

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


def handle(broker: "Broker", exchange: "Exchange", body: memoryview) -> None:
    if not is_announced(API_VERSIONS, exchange.version):
        answer(exchange, _ranges(ErrorCode.UNSUPPORTED_VERSION, [API_VERSIONS]), version=0)
        return
    messages.decode_request(API_VERSIONS, exchange.version, body)
    answer(exchange, _ranges(ErrorCode.NONE, ANNOUNCED))


def _ranges(error: int, api_keys: Iterable[int]) -> Fields:
    ranges = [
        {"api_key": key, "min_version": ANNOUNCED[key].min, "max_version": ANNOUNCED[key].max} for key in api_keys
    ]
    return {"error_code": error, "api_keys": ranges}
