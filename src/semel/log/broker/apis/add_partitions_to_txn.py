"""AddPartitionsToTxn (24), versions 0 to 5: a producer announces which partitions will take part in its transaction.

Versions 4 and 5 are for requests between brokers. Such a request names several transactions, and may only check whether
the partitions take part already. If one partition of a transaction does not exist, none is added.

The answer does not wait for the disk: it only matters together with the batches that follow. Their entries come later
in the journal, and their answer waits for the disk. But the entry must survive the process: otherwise a client that
finds another broker after a takeover could not end its transaction there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from semel.log.broker.apis.answers import answer_in_steps, decoded
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.apis.transactional import attempted_for_owner, check_timely, hanging_up_on_stragglers
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import ADD_PARTITIONS_TO_TXN

API: Final = Api(
    ADD_PARTITIONS_TO_TXN,
    (0, 5),
    rights=(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION),
    standby=Here.NOT_COORDINATOR,
)

# The first version whose clients know PRODUCER_FENCED.
_FENCED_FROM: Final = 2
_SEVERAL_FROM: Final = 4

# A partition as clients name it.
_Named = tuple[str, int]


class _Addition(NamedTuple):
    """The partitions to add to one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: dict[_Named, None]


@hanging_up_on_stragglers
def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.add_partitions_to_txn.AddPartitionsToTxnRequest, body)
    api = kafka.add_partitions_to_txn
    several = exchange.version >= _SEVERAL_FROM
    # Only brokers use these versions.
    refusal = broker.guard.error(exchange, CLUSTER_ACTION) if several else ErrorCode.NONE
    if refusal:
        yield from answer_in_steps(exchange, api.AddPartitionsToTxnResponse(error_code=refusal))
        return
    additions = map(_addition, request.transactions) if several else (_only_addition(request),)
    results = []
    for steps in additions:
        addition = yield from steps
        outcome = yield from _outcome(broker, exchange, addition)
        yield APPEND_PIECES + len(addition.partitions)
        results.append((addition.transactional_id, (yield from _results(outcome))))
    if several:
        response = api.AddPartitionsToTxnResponse(
            results_by_transaction=[
                api.AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
                for transactional_id, topics in results
            ]
        )
    else:
        response = api.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0][1])
    yield from answer_in_steps(exchange, response, after=broker.pump.end_to_outlive_kills)


def _only_addition(request: kafka.add_partitions_to_txn.AddPartitionsToTxnRequest) -> Steps[_Addition]:
    return _Addition(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        (yield from _partitions(request.v3_and_below_topics)),
    )


def _addition(transaction: kafka.add_partitions_to_txn.AddPartitionsToTxnTransaction) -> Steps[_Addition]:
    return _Addition(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.verify_only,
        (yield from _partitions(transaction.topics)),
    )


def _partitions(topics: Iterable[kafka.add_partitions_to_txn.AddPartitionsToTxnTopic]) -> Steps[dict[_Named, None]]:
    partitions: dict[_Named, None] = {}
    for topic in topics:
        for index in topic.partitions:
            partitions[topic.name, index] = None
            yield 1
        yield 1
    return partitions


def _outcome(broker: Serving, exchange: Exchange, addition: _Addition) -> Steps[Mapping[_Named, int]]:
    """The error code of each partition."""
    is_clients = exchange.version < _SEVERAL_FROM
    if is_clients:
        refusal = broker.guard.error(exchange, WRITE_TRANSACTIONAL_ID, addition.transactional_id)
        if refusal:
            return dict.fromkeys(addition.partitions, refusal)
    if len(addition.partitions) > broker.limits.transaction_partitions_max:
        return dict.fromkeys(addition.partitions, ErrorCode.POLICY_VIOLATION)
    places = {}
    for topic_name, index in addition.partitions:
        refusal = broker.guard.error(exchange, WRITE_TOPIC, topic_name) if is_clients else ErrorCode.NONE
        places[topic_name, index] = refusal or _partition_name(broker, topic_name, index)
        yield 2
    # From here on there is no step, so that all partitions are added or none.
    if is_clients:
        check_timely(broker, exchange, addition.producer_id)
    names = {place: name for place, name in places.items() if not isinstance(name, int)}
    numbered = broker.log.state.catalog.numbered
    deleted_numbers = {number for number in {name.number for name in names.values()} if numbered(number) is None}
    errors: dict[_Named, int] = {place: name for place, name in places.items() if isinstance(name, int)}
    errors |= {
        place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for place, name in names.items() if name.number in deleted_numbers
    }
    if errors:
        return {place: errors.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
    missing = attempted_for_owner(
        broker, exchange, lambda: _attempt(broker, exchange, addition, names), fenced_from=_FENCED_FROM
    )
    if isinstance(missing, Refused):
        return dict.fromkeys(places, missing.error)
    return {
        place: ErrorCode.TRANSACTION_ABORTABLE if name in missing else ErrorCode.NONE for place, name in names.items()
    }


def _attempt(
    broker: Serving, exchange: Exchange, addition: _Addition, names: Mapping[_Named, PartitionName]
) -> set[PartitionName]:
    """Add the partitions; or, for a request that only checks, say which are missing."""
    owner = (addition.transactional_id, addition.producer_id, addition.producer_epoch)
    if addition.verify_only:
        return broker.log.state.transaction_rules.missing_partitions(*owner, names.values())
    broker.transactions.add_partitions(*owner, list(names.values()), exchange.address)
    if exchange.version < _SEVERAL_FROM:
        broker.transactions.note_heard(addition.producer_id, exchange.connection_number)
    return set()


def _partition_name(broker: Serving, topic_name: str, index: int) -> PartitionName | int:
    """The partition, or the error of one that does not exist."""
    try:
        topic, _ = partition_of(broker, topic_name, index)
    except Refused as refused:
        return refused.error
    return PartitionName(topic.number, index)


def _results(
    outcome: Mapping[_Named, int],
) -> Steps[list[kafka.add_partitions_to_txn.AddPartitionsToTxnTopicResult]]:
    """Error codes in the form of an answer: by topic, with the partitions in the order of the request."""
    api = kafka.add_partitions_to_txn
    by_topic: dict[str, list[kafka.add_partitions_to_txn.AddPartitionsToTxnPartitionResult]] = {}
    for (topic_name, index), error in outcome.items():
        result = api.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        by_topic.setdefault(topic_name, []).append(result)
        yield 1
    return [
        api.AddPartitionsToTxnTopicResult(name=topic_name, results_by_partition=results)
        for topic_name, results in by_topic.items()
    ]
