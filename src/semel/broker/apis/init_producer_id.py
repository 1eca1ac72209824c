"""InitProducerId (22), versions 0 to 5: an id for a producer that wants to be idempotent.

Without a transactional id every request gets a new id, with epoch 0, durable before it is handed out.
"""

from typing import TYPE_CHECKING

from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.versions import INIT_PRODUCER_ID

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


def handle(broker: "Broker", exchange: "Exchange", body: memoryview) -> None:
    version = exchange.version
    request = messages.decode_request(INIT_PRODUCER_ID, version, body)
    error, producer_id = ErrorCode.NONE, -1
    if request.transactional_id is not None:
        error = ErrorCode.INVALID_REQUEST
    else:
        try:
            producer_id = broker.log.new_producer_id(broker.now_ms())
        except OSError as refusal:
            broker.storage_error(refusal)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = messages.build_response(
        INIT_PRODUCER_ID,
        version,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=-1 if error else 0,
    )
    frame = messages.encode_response(INIT_PRODUCER_ID, version, exchange.correlation_id, answer)
    exchange.reply((frame,), after=broker.log.end)
