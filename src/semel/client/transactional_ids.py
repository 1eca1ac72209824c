"""Transactional ids for administrators: lists them and the states of their transactions, and claims one.

A claim ends the open transaction of the id: the broker fences the producer and aborts its transaction. So a claim must
never be sent again without an answer to the first one: another producer may have begun in between, and it would be
fenced, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from semel.client import codes
from semel.client.cluster import TRANSACTION, Cluster
from semel.client.connection import NotSpoken
from semel.client.patience import Moved, Patience
from semel.client.places import TopicPartition
from semel.client.settings import Address
from semel.wire import kafka
from semel.wire.errors import ErrorCode

# The state of a transaction that its producer still writes.
OPEN: Final = "Ongoing"
# The state of a committed transaction while its markers are still being written to its partitions.
_COMMITTING: Final = "PrepareCommit"
# The states of a transaction that has begun and not ended.
_UNDER_WAY: Final = (OPEN, _COMMITTING, "PrepareAbort")

# The timeout with which an id is claimed; the next producer that claims it sets its own.
_TIMEOUT_MS: Final = 60_000
# Apache Kafka answers that the abort is under way, and has to be asked again.
_ABORT_MS_MAX: Final = 30_000


class Listed(NamedTuple):
    name: str
    producer_id: int
    state: str


class Described(NamedTuple):
    """The state of an id's transaction; without a transaction there is no time at which it began."""

    name: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    began_at_ms: int | None
    partitions: list[TopicPartition]


class Claimed(NamedTuple):
    """The id and epoch of the new producer."""

    producer_id: int
    producer_epoch: int


def listed(cluster: Cluster, states: Iterable[str] = ()) -> dict[Address, list[Listed]]:
    """Every transactional id, or those whose transaction is in one of these states, by the broker that coordinates it,
    sorted by name.
    """
    ids = {}
    for broker in cluster.brokers():
        answer = cluster.ask(
            broker, kafka.list_transactions.ListTransactionsRequest(state_filters=list(states), producer_id_filters=())
        )
        codes.check_coordinator("the list of transactions", answer.error_code, right="Describe on transactional ids")
        ids[broker] = sorted(
            Listed(one.transactional_id, one.producer_id, one.transaction_state) for one in answer.transaction_states
        )
    return ids


def described(cluster: Cluster, coordinator: Address, names: Iterable[str]) -> list[Described]:
    """The states of the transactions of these ids, without ids that the broker does not know."""
    answer = cluster.ask(
        coordinator, kafka.describe_transactions.DescribeTransactionsRequest(transactional_ids=list(names))
    )
    return [
        _described(one) for one in answer.transaction_states if one.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    ]


def is_committing(cluster: Cluster, name: str) -> bool:
    """Whether the transaction of this id is committed, but not yet for all of its partitions and groups. Apache Kafka
    before 3.0 cannot tell, and the answer is no.
    """
    coordinator = cluster.coordinator(name, TRANSACTION)
    try:
        return any(one.state == _COMMITTING for one in described(cluster, coordinator, [name]))
    except NotSpoken:
        return False


def under_way(cluster: Cluster) -> str | None:
    """An id with a transaction that has begun and not ended, as far as this user may see it; None if there is none.
    Apache Kafka before 3.0 cannot tell.
    """
    try:
        return next((one.name for ids in listed(cluster, _UNDER_WAY).values() for one in ids), None)
    except NotSpoken:
        return None


def _described(answer: kafka.describe_transactions.TransactionState) -> Described:
    what = f"transactional id {answer.transactional_id!r}"
    codes.check_coordinator(what, answer.error_code, right=f"Describe on {what}")
    began_at_ms = answer.transaction_start_time_ms
    return Described(
        answer.transactional_id,
        answer.producer_id,
        answer.producer_epoch,
        answer.transaction_state,
        answer.transaction_timeout_ms,
        began_at_ms if began_at_ms >= 0 else None,
        sorted(TopicPartition(topic.topic, number) for topic in answer.topics for number in topic.partitions),
    )


def claim(cluster: Cluster, name: str) -> Claimed:
    """Abort the open transaction of this id and fence its producer; returns when that has happened."""
    patience = Patience(cluster.settings, _ABORT_MS_MAX)
    what = f"transactional id {name!r}"
    while True:
        coordinator = patience.patiently(lambda: cluster.coordinator(name, TRANSACTION))
        answer = cluster.ask(
            coordinator,
            kafka.init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS),
        )
        try:
            codes.check_coordinator(what, answer.error_code, right=f"Write on {what}")
        except Moved as reason:
            patience.wait(reason)
            continue
        return Claimed(answer.producer_id, answer.producer_epoch)
