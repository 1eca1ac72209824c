"""What is committed: as a log shows it to those who read committed records only, and as a list of all entries says.

Both sides are as naive as can be, and they have nothing in common: a log gives batches up to its stable offset and the
list of the aborted, from which `shown` picks what a client would; `visible` and `Committed` go through everything that
ever happened. They must never ask the log under test how it came to its answer.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from read_committed import unaborted
from semel.log.core.entries import (
    BatchAppended,
    Entry,
    OffsetsCommitted,
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
)
from semel.log.core.transactions import State
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog
from semel.wire.batch import read_header


class Committed(NamedTuple):
    """What is known besides records: who owns each transactional id, and how far each group has come."""

    # Producer id, epoch, and what became of the last transaction.
    owners: dict[str, tuple[int, int, State]]
    # By group, topic number and partition: the offset and what is noted beside it.
    offsets: dict[tuple[str, int, int], tuple[int, str]]


def shown(partition: PartitionLog) -> tuple[bytes, ...]:
    """The batches that a consumer who reads committed records would show, by the rule that all clients follow."""
    log_start, until = partition.state.log_start, partition.stable
    if log_start >= until.offset:
        return ()
    batches = (bytes(data) for _, data in partition.batches(log_start, until))
    return tuple(unaborted(batches, partition.aborted.between(log_start, until.offset)))


def visible(everything: Sequence[bytes], log_start: int) -> tuple[bytes, ...]:
    """The same, from all batches and markers that the partition ever had."""
    undecided: dict[int, list[int]] = {}
    committed: set[int] = set()
    for place, stored in enumerate(everything):
        header = read_header(stored)
        if header.is_control:
            decided = undecided.pop(header.producer_id, [])
            # The type of a marker is the last byte of its record's key.
            committed.update(decided if stored[69] == 1 else [])
        elif header.is_transactional:
            undecided.setdefault(header.producer_id, []).append(place)
        else:
            committed.add(place)
    stable = min((places[0] for places in undecided.values()), default=len(everything))
    if stable < len(everything) and read_header(everything[stable]).base_offset <= log_start:
        # Where the log begins behind the beginning of an open transaction, that is where everybody has to stop.
        return ()
    return tuple(
        everything[place]
        for place in sorted(committed)
        if place < stable and read_header(everything[place]).next_offset > log_start
    )


def committed_in(log: Log) -> Committed:
    """What a log says."""
    return Committed(
        {
            found.owner.transactional_id: (found.owner.producer_id, found.owner.producer_epoch, found.state)
            for found in log.state.transactions.all_described()
        },
        {
            (group.name, *name): (committed.offset, committed.metadata)
            for group in log.state.groups
            for name, committed in group.offsets.committed
        },
    )


def committed_by(entries: Iterable[Entry]) -> Committed:
    """What follows from these entries."""
    owners: dict[str, tuple[int, int, State]] = {}
    asked: list[_Asked] = []
    for entry in entries:
        match entry:
            case TransactionalIdClaimed():
                owners[entry.transactional_id] = (entry.producer_id, entry.producer_epoch, State.EMPTY)
            case BatchAppended():
                header = read_header(entry.batch)
                if header.is_transactional:
                    _change(owners, header.producer_id, header.producer_id, header.producer_epoch, State.ONGOING)
            case TransactionGrew():
                _change(owners, entry.producer_id, entry.producer_id, entry.producer_epoch, State.ONGOING)
            case TransactionalOffsets():
                _change(owners, entry.producer_id, entry.producer_id, entry.producer_epoch, State.ONGOING)
                asked += [_Asked(entry.producer_id, entry.group, *offset) for offset in entry.offsets]
            case OffsetsCommitted():
                asked += [_Asked(None, entry.group, *offset) for offset in entry.offsets]
            case TransactionEnded():
                state = State.COMPLETE_COMMIT if entry.committed else State.COMPLETE_ABORT
                _change(owners, entry.producer_id, entry.next_producer_id, entry.next_epoch, state)
                asked = [_decided(offset, entry) for offset in asked]
                asked = [offset for offset in asked if offset is not _DROPPED]
            case TopicDeleted():
                asked = [offset for offset in asked if offset.number != entry.number]
    return Committed(
        owners,
        {
            (offset.group, offset.number, offset.partition): (offset.offset, offset.metadata)
            for offset in asked
            if offset.producer_id is None
        },
    )


class _Asked(NamedTuple):
    """An offset in the order in which it was asked for, and the producer whose transaction it belongs to."""

    producer_id: int | None
    group: str
    number: int
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


_DROPPED = _Asked(None, "", -1, -1, -1, -1, "")


def _decided(offset: _Asked, entry: TransactionEnded) -> _Asked:
    if offset.producer_id != entry.producer_id:
        return offset
    return offset._replace(producer_id=None) if entry.committed else _DROPPED


def _change(
    owners: dict[str, tuple[int, int, State]], producer_id: int, next_producer_id: int, epoch: int, state: State
) -> None:
    for transactional_id, owner in owners.items():
        if owner[0] == producer_id:
            owners[transactional_id] = (next_producer_id, epoch, state)
