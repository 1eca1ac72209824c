"""Writes the markers of a transaction into its partitions: all at once, or prepared in steps.

A marker takes effect only with the entry that ends the transaction. Until then it lies after the end of its partition,
where the next batch may overwrite it.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from semel.log.core.entries import TransactionEnded
from semel.log.core.state import State
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Mark
from semel.wire import batch as batches
from semel.wire.steps import APPEND_PIECES, Steps

# Markers in one step. The first record of a partition creates a file.
MARKERS_AT_ONCE: Final = 10


class PreparedEnd(NamedTuple):
    """A transaction's end whose markers are written: the entry without its partitions, and the write in each
    partition.
    """

    entry: TransactionEnded
    written: dict[PartitionLog, tuple[int, Mark]]


def prepare_end(state: State[PartitionLog], entry: TransactionEnded) -> Steps[PreparedEnd]:
    """Write the markers of a transaction's end in steps, before its entry. `write_markers` repeats those that a batch
    has overwritten meanwhile, and those whose segment was sealed or deleted meanwhile.
    """
    writes: dict[PartitionLog, tuple[int, Mark]] = {}
    for some in range(0, len(entry.partitions), MARKERS_AT_ONCE):
        partitions = entry.partitions[some : some + MARKERS_AT_ONCE]
        for partition in write_markers(state, replace(entry, partitions=partitions)):
            writes[partition] = partition.last_write
        yield APPEND_PIECES * len(partitions)
    yield from state.groups.take(entry.groups)
    return PreparedEnd(replace(entry, partitions=()), writes)


def write_markers(
    state: State[PartitionLog], entry: TransactionEnded, prepared: PreparedEnd | None = None
) -> list[PartitionLog]:
    """Write the marker at the end of each partition of the transaction that still exists; return these partitions."""
    is_same = prepared is not None and prepared.entry == replace(entry, partitions=())
    writes = prepared.written if prepared is not None and is_same else {}
    # The same bytes for all partitions: only the offset differs, which the checksum does not cover.
    marker = batches.control_batch(entry.producer_id, entry.marker_epoch, 0, entry.at_ms, entry.committed)
    header = batches.read_header(marker)
    partitions = state.partitions.ended_by(entry)
    for partition in partitions:
        if writes.get(partition) != partition.last_write:
            configs = state.catalog.known(partition.topic_number).parsed
            batch = batches.place(marker, header, partition.state.next_offset, state.partitions.leader_epoch)
            partition.write(batch, marker, entry.at_ms, configs)
    return partitions
