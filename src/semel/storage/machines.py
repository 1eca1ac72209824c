"""The state machines of a log but for its partitions: what an entry makes of them, and what a checkpoint says of them.

A log at work keeps its partitions with their files, and one that is only examined without; what is here they have in
common, so that both come to the same state. Nothing here reads or writes a file.
"""

from typing import Any

from semel.core.entries import (
    ProducerIdsReserved,
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
)
from semel.core.groups.groups import GroupEntry, Groups
from semel.core.producer_ids import ProducerIds
from semel.core.silence import Silence
from semel.core.topics import Catalog, CatalogEntry, Topic
from semel.core.transactions import Transactions

MachineEntry = (
    CatalogEntry
    | ProducerIdsReserved
    | TransactionalIdClaimed
    | TransactionGrew
    | TransactionalIdsForgotten
    | GroupEntry
)


class Machines:
    """Topics, producer ids, transactions and groups."""

    def __init__(self, catalog: Catalog, transactions: Transactions, groups: Groups) -> None:
        self.catalog = catalog
        self.producer_ids = ProducerIds()
        self.transactions = transactions
        self.groups = groups
        self.silence = Silence()

    def _check_against_machines(self, entry: MachineEntry) -> None:
        """ValueError unless this entry can follow on those before it."""
        if isinstance(entry, ProducerIdsReserved):
            self.producer_ids.check(entry)
        elif isinstance(entry, TransactionalIdClaimed | TransactionGrew | TransactionalIdsForgotten):
            self.transactions.check(entry)
        elif isinstance(entry, TransactionalOffsets | TransactionEnded):
            self.transactions.check(entry)
            self.groups.check(entry)
        elif isinstance(entry, GroupEntry):
            self.groups.check(entry)
        else:
            self.catalog.check(entry)

    def _apply_to_machines(self, entry: MachineEntry) -> Topic | None:
        """Make an entry true, but for what it makes of partitions. Answers the topic that has changed, if one has."""
        if isinstance(entry, ProducerIdsReserved):
            self.producer_ids.apply(entry)
        elif isinstance(entry, TransactionalIdClaimed | TransactionGrew | TransactionalIdsForgotten):
            self.transactions.apply(entry)
        elif isinstance(entry, TransactionalOffsets | TransactionEnded):
            self.transactions.apply(entry)
            self.groups.apply(entry)
        elif isinstance(entry, GroupEntry):
            self.groups.apply(entry)
        else:
            topic = self.catalog.apply(entry)
            if isinstance(entry, TopicDeleted):
                self.transactions.topic_deleted(topic.number)
                self.groups.topic_deleted(topic.number)
            return topic
        return None

    def _begin_machines_snapshot(self) -> dict[str, Any]:
        """As of now; of the groups, which may be very many, it has what was taken of them."""
        return {
            "catalog": self.catalog.snapshot(),
            "producer_ids": self.producer_ids.snapshot(),
            "transactions": self.transactions.snapshot(),
            "groups": self.groups.begin_snapshot(),
            "silence": self.silence.snapshot(),
        }

    def _restore_machines(self, state: dict[str, Any]) -> None:
        self.catalog.restore(state["catalog"])
        self.producer_ids = ProducerIds.restore(state["producer_ids"])
        self.transactions.restore(state["transactions"])
        self.groups.restore(state["groups"])
        if "silence" in state:
            self.silence.restore(state["silence"])
