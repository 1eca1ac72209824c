"""DescribeTransactions (65), version 0: the owner of a transactional id, and its open transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName
from semel.log.core.transactions import NO_EPOCH, NO_PRODUCER
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_TRANSACTIONS

API: Final = Api(
    DESCRIBE_TRANSACTIONS, (0, 0), rights=(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR
)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_transactions.DescribeTransactionsRequest
) -> Steps[kafka.describe_transactions.DescribeTransactionsResponse]:
    # Each is answered once: otherwise a small request could have an answer of any size.
    ids = dict.fromkeys(request.transactional_ids)
    states = []
    for transactional_id in ids:
        parts = broker.log.state.transactions.open_parts(transactional_id)
        state = attempted(_describe, broker, exchange, transactional_id)
        states.append(_unknown(transactional_id, state) if isinstance(state, Refused) else state)
        yield 1 + parts
    return kafka.describe_transactions.DescribeTransactionsResponse(transaction_states=states)


def _unknown(transactional_id: str, refusal: Refused) -> kafka.describe_transactions.TransactionState:
    return kafka.describe_transactions.TransactionState(
        error_code=refusal.error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=-1,
        producer_id=NO_PRODUCER,
        producer_epoch=NO_EPOCH,
        topics=(),
    )


def _describe(
    broker: Serving, exchange: Exchange, transactional_id: str
) -> kafka.describe_transactions.TransactionState:
    if not transactional_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    broker.guard.check(exchange, DESCRIBE_TRANSACTIONAL_ID, transactional_id)
    description = broker.log.state.transactions.described(transactional_id)
    if description is None:
        raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id '{transactional_id}'")
    owner = description.owner
    return kafka.describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=description.state.shown,
        transaction_timeout_ms=owner.timeout_ms,
        transaction_start_time_ms=description.began_at_ms,
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
        topics=_topics(broker, exchange, description.partitions),
    )


def _topics(
    broker: Serving, exchange: Exchange, partitions: Iterable[PartitionName]
) -> list[kafka.describe_transactions.TopicData]:
    by_topic: dict[int, list[int]] = {}
    for name in partitions:
        by_topic.setdefault(name.number, []).append(name.partition)
    numbered = broker.log.state.catalog.numbered
    return [
        kafka.describe_transactions.TopicData(topic=topic.name, partitions=indexes)
        for number, indexes in by_topic.items()
        if (topic := numbered(number)) is not None and broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name)
    ]
