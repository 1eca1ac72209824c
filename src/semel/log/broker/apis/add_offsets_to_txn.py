"""AddOffsetsToTxn (25), versions 0 to 4: a producer announces that offsets of a group take part in its transaction.

The answer does not wait for the disk: it only matters together with the offsets that follow. Their entry comes later in
the journal, and their answer waits for the disk. But the entry must survive the process: otherwise a client that finds
another broker after a takeover could not end its transaction there.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, decoded, error_of
from semel.log.broker.apis.transactional import attempted_for_owner, check_timely, hanging_up_on_stragglers
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP, WRITE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.steps import Steps
from semel.wire.versions import ADD_OFFSETS_TO_TXN

API: Final = Api(ADD_OFFSETS_TO_TXN, (0, 4), rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP), standby=Here.NOT_COORDINATOR)

# The first version whose clients know PRODUCER_FENCED.
_FENCED_FROM: Final = 2


@hanging_up_on_stragglers
def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.add_offsets_to_txn.AddOffsetsToTxnRequest, body)
    refusal = attempted_for_owner(broker, exchange, lambda: _add(broker, exchange, request), fenced_from=_FENCED_FROM)
    response = kafka.add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=error_of(refusal))
    yield from answer_in_steps(exchange, response, after=broker.pump.end_to_outlive_kills)


def _add(broker: Serving, exchange: Exchange, request: kafka.add_offsets_to_txn.AddOffsetsToTxnRequest) -> None:
    broker.guard.check(exchange, WRITE_TRANSACTIONAL_ID, request.transactional_id)
    broker.guard.check(exchange, READ_GROUP, request.group_id)
    check_timely(broker, exchange, request.producer_id)
    producer_id = request.producer_id
    broker.transactions.add_group(request.transactional_id, producer_id, request.producer_epoch, request.group_id)
    broker.transactions.note_heard(producer_id, exchange.connection_number)
