"""EndTxn (26), versions 0 to 5: commits or aborts a transaction, in all its partitions and groups at once.

Version 5 belongs to the second version of transactions: it raises the epoch and answers the producer id and epoch that
the producer goes on with.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, decoded
from semel.log.broker.apis.transactional import attempted_for_owner_in_steps, check_timely, hanging_up_on_stragglers
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import WRITE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.transactions import NO_EPOCH, NO_PRODUCER
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import END_TXN

API: Final = Api(END_TXN, (0, 5), rights=(WRITE_TRANSACTIONAL_ID,), standby=Here.NOT_COORDINATOR)

# The first version whose clients know PRODUCER_FENCED.
_FENCED_FROM: Final = 2
_RAISES_EPOCH_FROM: Final = 5


@hanging_up_on_stragglers
def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.end_txn.EndTxnRequest, body)
    raises_epoch = exchange.version >= _RAISES_EPOCH_FROM
    response = yield from attempted_for_owner_in_steps(
        broker, exchange, _end(broker, exchange, request, raises_epoch), fenced_from=_FENCED_FROM
    )
    if isinstance(response, Refused):
        response = kafka.end_txn.EndTxnResponse(
            error_code=response.error, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH
        )
    yield from answer_in_steps(exchange, response, after=broker.log.end)


def _end(
    broker: Serving, exchange: Exchange, request: kafka.end_txn.EndTxnRequest, raises_epoch: bool
) -> Steps[kafka.end_txn.EndTxnResponse]:
    def check() -> None:
        # Since version 5 the epoch says which transaction is meant.
        if not raises_epoch:
            check_timely(broker, exchange, request.producer_id)

    broker.guard.check(exchange, WRITE_TRANSACTIONAL_ID, request.transactional_id)
    end = yield from broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        raises_epoch=raises_epoch,
        check_timely=check,
    )
    if not raises_epoch:
        broker.transactions.note_heard(request.producer_id, exchange.connection_number)
    return kafka.end_txn.EndTxnResponse(producer_id=end.producer_id, producer_epoch=end.producer_epoch)
