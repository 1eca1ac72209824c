"""InitProducerId (22), versions 0 to 5: an id for a producer that wants to be idempotent.

Without a transactional id every request gets a new id, with epoch 0, durable before it is handed out.
"""

from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered, attempted
from semel.core.batch import NO_PRODUCER
from semel.core.refusals import Refused
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange

_NO_EPOCH = -1


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    return {"producer_id": NO_PRODUCER, "producer_epoch": _NO_EPOCH, **attempted(_begin, broker, request)}


def _begin(broker: "Broker", request: Any) -> Fields:
    if request.transactional_id is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, "there are no transactions yet")
    has_id = getattr(request, "producer_id", NO_PRODUCER) != NO_PRODUCER
    if has_id != (getattr(request, "producer_epoch", _NO_EPOCH) != _NO_EPOCH):
        raise Refused(ErrorCode.INVALID_REQUEST, "a producer id and its epoch come together or not at all")
    try:
        return {"producer_id": broker.log.new_producer_id(broker.now_ms()), "producer_epoch": 0}
    except OSError as refusal:
        broker.storage_error(refusal)
        # The error that every client takes as a reason to try again.
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk would not take it") from refusal
