"""Finds the batches of a Fetch answer that belong to aborted transactions.

A broker lists the aborted transactions only for read_committed; with read_uncommitted no batch counts as aborted.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from semel.client.bad_batches import BadBatch, Report, refuse
from semel.client.client import Fetched
from semel.wire.batch import BatchHeader
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer
from semel.wire.records import Batch, closed_batches, decode_batches

# The type in a control record's key: its two first bytes are a version.
_ABORT_KEY: Final = b"\x00\x00\x00\x00"


def batches(
    records: Buffer, aborted: Iterable[tuple[int, int]], report: Report = refuse
) -> Iterator[tuple[Batch, bool]]:
    """Each batch, and whether its transaction was aborted. `aborted` are producer ids, each with the offset at which
    its aborted transaction begins. A batch that cannot be read is reported, and left out if the report returns."""
    view = memoryview(records)
    for at, header, is_aborted in _judged(records, aborted):
        try:
            for batch in decode_batches(view[at : at + header.batch_bytes]):
                yield batch, is_aborted
        except ProtocolError as error:
            report(BadBatch(header, str(error)))


def committed_batches(fetched: Fetched) -> Iterator[tuple[int, BatchHeader]]:
    """Where each batch with records for the reader begins, and its header; no batch is decompressed."""
    for at, header, is_aborted in _judged(fetched.records, fetched.aborted):
        if not (header.is_control or is_aborted):
            yield at, header


def _judged(records: Buffer, aborted: Iterable[tuple[int, int]]) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Where each batch begins, its header, and whether its transaction was aborted."""
    to_come = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
    aborting: set[int] = set()
    view = memoryview(records)
    for at, header in closed_batches(records):
        while to_come and to_come[-1][0] < header.next_offset:
            aborting.add(to_come.pop()[1])
        is_aborting = header.producer_id in aborting
        if header.is_control and is_aborting and _aborts(view[at : at + header.batch_bytes]):
            aborting.discard(header.producer_id)
        yield at, header, header.is_transactional and not header.is_control and is_aborting


def _aborts(control_batch: memoryview) -> bool:
    try:
        (marker,) = decode_batches(control_batch)
    except ProtocolError:
        # A batch that nobody can read ends nothing.
        return False
    return bool(marker.records) and marker.records[0].key == _ABORT_KEY
