"""Transactions: who owns a transactional id, what takes part in its open transaction, and how it ends."""

from typing import Any

from semel.core.entries import (
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
)

TransactionEntry = (
    TransactionalIdClaimed | TransactionGrew | TransactionalOffsets | TransactionEnded | TransactionalIdsForgotten
)


class Transactions:
    """Every transactional id with its producer and its transaction."""

    def apply(self, entry: TransactionEntry) -> None:
        raise NotImplementedError

    def snapshot(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> "Transactions":
        return cls()
