"""InitProducerId (22), versions 0 to 5: hands out an id for an idempotent producer, or claims a transactional id.

Without a transactional id every request gets a new producer id, with epoch 0, which is durable before the answer; while
access rules are in force, it belongs to the client's principal. With a transactional id, the producer gets the producer
id that belongs to it, in a new epoch: the former producer is fenced, and its open transaction is aborted before the
answer. Apache Kafka makes the client retry until that is done.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps
from semel.log.broker.apis.transactional import attempted_for_owner_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.producer_ids import NOBODY
from semel.wire import kafka
from semel.wire.batch import NO_PRODUCER
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import INIT_PRODUCER_ID

# Version 6 (two-phase commit) is unstable in Apache Kafka 4.3. Without a transactional id there is no coordinator to
# look for, so a standby forwards it: librdkafka would ask the same broker again and again.
API: Final = Api(
    INIT_PRODUCER_ID,
    (0, 5),
    rights=(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_TOPIC),
    standby=Here.NOT_COORDINATOR,
    forwards=True,
)

_NO_EPOCH: Final = -1
# The first version whose clients know PRODUCER_FENCED.
_FENCED_FROM: Final = 4


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.init_producer_id.InitProducerIdRequest
) -> Steps[kafka.init_producer_id.InitProducerIdResponse]:
    response = yield from attempted_for_owner_in_steps(
        broker, exchange, _begin(broker, exchange, request), fenced_from=_FENCED_FROM
    )
    if isinstance(response, Refused):
        return kafka.init_producer_id.InitProducerIdResponse(
            error_code=response.error, producer_id=NO_PRODUCER, producer_epoch=_NO_EPOCH
        )
    return response


def _begin(
    broker: Serving, exchange: Exchange, request: kafka.init_producer_id.InitProducerIdRequest
) -> Steps[kafka.init_producer_id.InitProducerIdResponse]:
    api = kafka.init_producer_id
    if request.transactional_id is not None:
        broker.guard.check(exchange, WRITE_TRANSACTIONAL_ID, request.transactional_id)
    elif not broker.guard.sees(exchange, IDEMPOTENT_WRITE):
        broker.guard.check_some(exchange, WRITE_TOPIC)
    supplied = (request.producer_id, request.producer_epoch)
    if (supplied[0] != NO_PRODUCER) != (supplied[1] != _NO_EPOCH):
        raise Refused(ErrorCode.INVALID_REQUEST, "a request must have both a producer id and an epoch, or neither")
    if request.transactional_id is None:
        owner = broker.guard.owner_of_ids(exchange)
        producer_id = broker.runtime.new_producer_id(owner or NOBODY)
        return api.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    claim = yield from broker.transactions.claim_in_steps(
        request.transactional_id,
        request.transaction_timeout_ms,
        supplied if supplied[0] != NO_PRODUCER else None,
        exchange.address,
    )
    return api.InitProducerIdResponse(producer_id=claim.producer_id, producer_epoch=claim.producer_epoch)
