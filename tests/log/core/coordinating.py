"""Transactions for tests of their rules: decisions are applied at once, at a time that stands until it is moved."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from semel.log.core.entries import PartitionName, StoredOffset, TransactionalIdClaimed, TransactionEnded
from semel.log.core.transaction_rules import End, IdClaim, TransactionBounds, TransactionRules
from semel.log.core.transactions import State, Transactions
from semel.wire.refusals import Refused

ORDERS = PartitionName(1, 0)
PAYMENTS = PartitionName(2, 0)
OFFSETS = (StoredOffset(1, 0, 5, -1, ""),)


class Coordinator(TransactionRules):
    """Rules of transactions, whose decisions are applied at once, at a time that stands until it is moved."""

    def __init__(self, bounds: TransactionBounds | None = None) -> None:
        self.known = Transactions()
        super().__init__(self.known, bounds or TransactionBounds())
        self.now_ms = 1_000
        self._ids: Iterator[int] = count(7000)

    def claim(self, name: str = "a", supplied: tuple[int, int] | None = None, timeout_ms: int = 60_000) -> IdClaim:
        claim = self.decide_init(name, timeout_ms, supplied, lambda: next(self._ids), self.now_ms)
        for entry in claim.entries:
            self.known.apply(entry)
        return claim

    def add(self, producer_id: int, epoch: int, *partitions: PartitionName, name: str = "a") -> None:
        grew = self.decide_add_partitions(name, producer_id, epoch, partitions, self.now_ms)
        if grew is not None:
            self.known.apply(grew)

    def send(self, producer_id: int, epoch: int, partition: PartitionName, *, joins: bool) -> None:
        self.check_batch(producer_id, epoch, partition, joins=joins)
        self.known.apply_batch(producer_id, partition, self.now_ms)

    def end(self, producer_id: int, epoch: int, *, committed: bool = True, version: int = 2, name: str = "a") -> End:
        end = self.decide_end(
            name, producer_id, epoch, committed, lambda: next(self._ids), self.now_ms, raises_epoch=version == 2
        )
        if end.entry is not None:
            self.known.apply(end.entry)
        return end

    def overdue(self) -> list[TransactionEnded]:
        """The ends of all transactions whose deadline has come."""
        late = [producer_id for producer_id, deadline_ms in self.known.deadlines() if deadline_ms <= self.now_ms]
        return [self.decide_timeout(producer_id, self.now_ms) for producer_id in late]

    def state(self, name: str = "a") -> State:
        described = self.known.described(name)
        assert described is not None
        return described.state


def error_of(refused: pytest.ExceptionInfo[Refused]) -> int:
    return refused.value.error


def at_epoch(epoch: int) -> tuple[Coordinator, int]:
    """A coordinator whose id "a" has come to this epoch."""
    coordinator = Coordinator()
    claim = coordinator.claim()
    (claimed,) = claim.entries
    assert isinstance(claimed, TransactionalIdClaimed)
    coordinator.known.apply(replace(claimed, producer_epoch=epoch))
    return coordinator, claim.producer_id
