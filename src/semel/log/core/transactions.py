"""The state of every transactional id: the producer that owns it, and the parts of its open transaction.

Only `apply` changes this state, in service and in recovery alike. An id's owner is an immutable value, which each
change replaces, so that a checkpoint can take all of them without copying. `semel.log.core.transaction_rules` decides
whether a request is allowed; nothing here decides.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from semel.log.core.entries import (
    PartitionName,
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
)

TransactionEntry = (
    TransactionalIdClaimed
    | TransactionGrew
    | TransactionalOffsets
    | TransactionEnded
    | TransactionalIdsForgotten
    | TopicDeleted
)

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1


class State(IntEnum):
    """The state of a transactional id, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def shown(self) -> str:
        """Kafka's name of the state, such as `CompleteCommit`."""
        return self.name.title().replace("_", "")


class Owner(NamedTuple):
    """A transactional id and the producer that owns it. Immutable: every change makes a new one.

    `last_producer_id` and `last_epoch` are those that the owner had before its present ones. If an answer was lost, the
    owner repeats its request with them. They are -1 if the owner has no request to repeat.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_epoch: int
    timeout_ms: int
    last_end: State
    changed_at_ms: int


@dataclass(slots=True)
class OpenTransaction:
    """The parts of an open transaction."""

    began_at_ms: int
    # In the order in which they joined.
    partitions: dict[PartitionName, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)

    @property
    def part_count(self) -> int:
        return len(self.partitions) + len(self.groups)


class Described(NamedTuple):
    """A transactional id as DescribeTransactions and ListTransactions show it."""

    owner: Owner
    state: State
    began_at_ms: int
    partitions: tuple[PartitionName, ...]


class Transactions:
    """The transactional ids, and the transactions that are open."""

    def __init__(self) -> None:
        self._owners: dict[int, Owner] = {}
        self._producer_ids: dict[str, int] = {}
        self._open: dict[int, OpenTransaction] = {}
        # Producers that may have been given a later epoch whose entry was then lost. It must not be given again.
        self._doubted: set[int] = set()
        # The number of partitions and groups in all open transactions together.
        self.part_count = 0
        self.group_count = 0

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    def opened(self, producer_id: int) -> OpenTransaction | None:
        """The open transaction of this producer."""
        return self._open.get(producer_id)

    def owner(self, producer_id: int) -> Owner | None:
        """The owner of a producer id."""
        return self._owners.get(producer_id)

    def is_doubted(self, producer_id: int) -> bool:
        """Whether this producer may have been given a later epoch whose entry was then lost."""
        return producer_id in self._doubted

    def takes_part(self, producer_id: int, partition: PartitionName) -> bool:
        """Whether this partition is part of an open transaction of this producer."""
        transaction = self._open.get(producer_id)
        return transaction is not None and partition in transaction.partitions

    # -- deadlines ----------------------------------------------------------------------------------------------

    def timeout_ms(self, producer_id: int) -> int:
        """How long a transaction of this producer may take."""
        return self._owners[producer_id].timeout_ms

    def deadlines(self) -> Iterator[tuple[int, int]]:
        """The producer of each open transaction, and the transaction's deadline."""
        for producer_id, transaction in self._open.items():
            yield producer_id, transaction.began_at_ms + self.timeout_ms(producer_id)

    # -- looking up ---------------------------------------------------------------------------------------------

    def state_of(self, owner: Owner) -> State:
        return State.ONGOING if owner.producer_id in self._open else owner.last_end

    def described(self, transactional_id: str) -> Described | None:
        owner = self.named(transactional_id)
        return None if owner is None else self._described(owner)

    def owners(self) -> list[Owner]:
        """Every transactional id, as it is now."""
        return list(self._owners.values())

    def open_parts(self, transactional_id: str) -> int:
        """The number of partitions and groups in the open transaction of this id."""
        transaction = self._open.get(self._producer_ids.get(transactional_id, NO_PRODUCER))
        return 0 if transaction is None else transaction.part_count

    def all_described(self) -> Iterator[Described]:
        return map(self._described, self._owners.values())

    def _described(self, owner: Owner) -> Described:
        transaction = self._open.get(owner.producer_id)
        if transaction is None:
            return Described(owner, owner.last_end, -1, ())
        return Described(owner, State.ONGOING, transaction.began_at_ms, tuple(transaction.partitions))

    def named(self, transactional_id: str) -> Owner | None:
        producer_id = self._producer_ids.get(transactional_id)
        return None if producer_id is None else self._owners[producer_id]

    def doubt(self) -> None:
        """Note that the last entries may be lost, and with them epochs that clients were given."""
        self._doubted.update(self._owners)

    # -- applying -----------------------------------------------------------------------------------------------

    def check(self, entry: TransactionEntry) -> None:
        """ValueError for an entry that cannot follow those before it, because the journal is damaged."""
        if isinstance(entry, TransactionalIdClaimed):
            self._check_unowned(entry.producer_id, entry.transactional_id)
            if self._producer_ids.get(entry.transactional_id) in self._open:
                raise ValueError(f"'{entry.transactional_id}' is claimed while its transaction is open")
        elif isinstance(entry, TransactionEnded):
            self._check_unowned(entry.next_producer_id, self.known(entry.producer_id).transactional_id)
        elif isinstance(entry, TransactionGrew | TransactionalOffsets):
            self.known(entry.producer_id)
        elif isinstance(entry, TransactionalIdsForgotten):
            for transactional_id in entry.transactional_ids:
                producer_id = self._producer_ids.get(transactional_id)
                if producer_id is None or producer_id in self._open:
                    raise ValueError(f"there is no transactional id '{transactional_id}', or its transaction is open")

    def _check_unowned(self, producer_id: int, transactional_id: str) -> None:
        """No other transactional id may have the producer id."""
        owner = self._owners.get(producer_id)
        if owner is not None and owner.transactional_id != transactional_id:
            raise ValueError(f"producer id {producer_id} belongs to '{owner.transactional_id}'")

    def apply(self, entry: TransactionEntry) -> None:
        """Apply an entry that `check` has accepted."""
        if isinstance(entry, TransactionalIdClaimed):
            self._apply_claim(entry)
        elif isinstance(entry, TransactionGrew):
            self._grow(entry.producer_id, entry.partitions, entry.groups, entry.at_ms)
        elif isinstance(entry, TransactionalOffsets):
            self._grow(entry.producer_id, (), (entry.group,), entry.at_ms)
        elif isinstance(entry, TransactionEnded):
            self._apply_end(entry)
        elif isinstance(entry, TopicDeleted):
            self._leave_topic(entry.number)
        else:
            for transactional_id in entry.transactional_ids:
                producer_id = self._producer_ids.pop(transactional_id)
                del self._owners[producer_id]
                self._doubted.discard(producer_id)

    def apply_batch(self, producer_id: int, partition: PartitionName, at_ms: int) -> None:
        """A transactional batch was appended: its partition is part of the producer's transaction."""
        transaction = self._open.get(producer_id)
        if transaction is None or partition not in transaction.partitions:
            self._grow(producer_id, (partition,), (), at_ms)

    def _leave_topic(self, number: int) -> None:
        """Remove the partitions of a deleted topic from all transactions."""
        for transaction in self._open.values():
            for name in [name for name in transaction.partitions if name.number == number]:
                del transaction.partitions[name]
                self.part_count -= 1

    def _apply_claim(self, entry: TransactionalIdClaimed) -> None:
        before = self._producer_ids.get(entry.transactional_id)
        if before is not None:
            del self._owners[before]
            if before != entry.producer_id:
                self._doubted.discard(before)
        self._producer_ids[entry.transactional_id] = entry.producer_id
        self._owners[entry.producer_id] = Owner(
            entry.transactional_id,
            entry.producer_id,
            entry.producer_epoch,
            entry.last_producer_id,
            entry.last_epoch,
            entry.timeout_ms,
            State.EMPTY,
            entry.at_ms,
        )

    def _apply_end(self, entry: TransactionEnded) -> None:
        owner = self.known(entry.producer_id)
        transaction = self._open.pop(entry.producer_id, None)
        if transaction is not None:
            self.part_count -= transaction.part_count
            self.group_count -= len(transaction.groups)
        del self._owners[entry.producer_id]
        if entry.next_producer_id != entry.producer_id:
            self._doubted.discard(entry.producer_id)
        last_producer_id, last_epoch = owner.last_producer_id, owner.last_epoch
        if entry.fenced:
            last_producer_id, last_epoch = NO_PRODUCER, NO_EPOCH
        elif entry.next_epoch != owner.producer_epoch:
            last_producer_id, last_epoch = owner.producer_id, owner.producer_epoch
        self._producer_ids[owner.transactional_id] = entry.next_producer_id
        self._owners[entry.next_producer_id] = owner._replace(
            producer_id=entry.next_producer_id,
            producer_epoch=entry.next_epoch,
            last_producer_id=last_producer_id,
            last_epoch=last_epoch,
            last_end=State.COMPLETE_COMMIT if entry.committed else State.COMPLETE_ABORT,
            changed_at_ms=entry.at_ms,
        )

    def _grow(self, producer_id: int, partitions: Iterable[PartitionName], groups: Iterable[str], at_ms: int) -> None:
        transaction = self._begun(producer_id, at_ms)
        before, groups_before = transaction.part_count, len(transaction.groups)
        transaction.partitions.update((PartitionName(*name), None) for name in partitions)
        transaction.groups.update((group, None) for group in groups)
        self.part_count += transaction.part_count - before
        self.group_count += len(transaction.groups) - groups_before

    def _begun(self, producer_id: int, at_ms: int) -> OpenTransaction:
        """The open transaction of a producer; if there is none, one begins now."""
        transaction = self._open.get(producer_id)
        if transaction is None:
            self._owners[producer_id] = self.known(producer_id)._replace(changed_at_ms=at_ms)
            transaction = self._open[producer_id] = OpenTransaction(at_ms)
        return transaction

    def known(self, producer_id: int) -> Owner:
        """The owner of a producer id; ValueError if there is none."""
        owner = self._owners.get(producer_id)
        if owner is None:
            raise ValueError(f"no transactional id has producer id {producer_id}")
        return owner

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "owners": list(self._owners.values()),
            "doubted": sorted(self._doubted),
            "open": [
                (producer_id, transaction.began_at_ms, list(transaction.partitions), list(transaction.groups))
                for producer_id, transaction in self._open.items()
            ],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Load the state in `snapshot`. Only for new, empty `Transactions`."""
        for values in snapshot["owners"]:
            owner = Owner(*values)
            owner = owner._replace(last_end=State(owner.last_end))
            self._owners[owner.producer_id] = owner
            self._producer_ids[owner.transactional_id] = owner.producer_id
        self._doubted = set(snapshot["doubted"])
        for producer_id, began_at_ms, partitions, groups in snapshot["open"]:
            transaction = OpenTransaction(
                began_at_ms, {PartitionName(*name): None for name in partitions}, dict.fromkeys(groups)
            )
            self._open[producer_id] = transaction
            self.part_count += transaction.part_count
            self.group_count += len(transaction.groups)
