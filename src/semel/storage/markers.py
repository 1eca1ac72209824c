"""The markers that the end of a transaction writes behind each of its partitions: all at once, or prepared in steps.

A marker counts with the one entry that ends the transaction and never before: until then it lies behind the end of
everything, where the next write may take its place.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from semel.core import batch as batches
from semel.core.entries import TransactionEnded
from semel.core.state import State
from semel.core.steps import APPEND_PIECES, Steps
from semel.storage.partition_log import PartitionLog
from semel.storage.segment import Mark

# Markers that are written between two steps; the first in a partition makes a file.
MARKERS_AT_ONCE: Final = 10


class PreparedEnd(NamedTuple):
    """An end whose markers are written already: the entry without its partitions, and each partition's write."""

    entry: TransactionEnded
    written: dict[PartitionLog, tuple[int, Mark]]


def prepare_end(state: State[PartitionLog], entry: TransactionEnded) -> Steps[PreparedEnd]:
    """Write the markers of an end that is to come, some at a time. Those that others have written over meanwhile are
    written again when it comes, and so are those whose segment does not grow any more: it may have been sealed, or its
    records deleted.
    """
    written: dict[PartitionLog, tuple[int, Mark]] = {}
    for some in range(0, len(entry.partitions), MARKERS_AT_ONCE):
        partitions = entry.partitions[some : some + MARKERS_AT_ONCE]
        for partition in write_markers(state, replace(entry, partitions=partitions)):
            written[partition] = partition.last_write
        yield APPEND_PIECES * len(partitions)
    yield from state.groups.take(entry.groups)
    return PreparedEnd(replace(entry, partitions=()), written)


def write_markers(
    state: State[PartitionLog], entry: TransactionEnded, prepared: PreparedEnd | None = None
) -> list[PartitionLog]:
    """Write the marker of a transaction's end behind each of its partitions that still exist, and answer which."""
    is_same = prepared is not None and prepared.entry == replace(entry, partitions=())
    written = prepared.written if prepared is not None and is_same else {}
    # One for all of them: only the offset is different, which the checksum does not cover.
    marker = batches.control_batch(entry.producer_id, entry.marker_epoch, 0, entry.at_ms, entry.committed)
    header = batches.read_header(marker)
    partitions = state.partitions.ended_by(entry)
    for partition in partitions:
        if written.get(partition) != partition.last_write:
            configs = state.catalog.known(partition.topic_number).parsed
            placed = batches.place(marker, header, partition.state.next_offset, state.partitions.leader_epoch)
            partition.write(placed, marker, entry.at_ms, configs)
    return partitions
