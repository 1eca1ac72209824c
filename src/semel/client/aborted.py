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
    to_come = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
    aborting: set[int] = set()
    for batch in _readable(records, report):
        while to_come and to_come[-1][0] <= batch.base_offset + batch.last_offset_delta:
            aborting.add(to_come.pop()[1])
        if batch.is_control and batch.records and batch.records[0].key == _ABORT_KEY:
            aborting.discard(batch.producer_id)
        yield batch, batch.is_transactional and not batch.is_control and batch.producer_id in aborting


def _readable(records: Buffer, report: Report) -> Iterator[Batch]:
    view = memoryview(records)
    for at, header in closed_batches(records):
        try:
            yield from decode_batches(view[at : at + header.batch_bytes])
        except ProtocolError as error:
            report(BadBatch(header, str(error)))


def committed_batches(fetched: Fetched) -> Iterator[tuple[int, BatchHeader]]:
    """Where each batch with records for the reader begins, and its header; no batch is decompressed."""
    to_come = sorted(((first_offset, producer_id) for producer_id, first_offset in fetched.aborted), reverse=True)
    aborting: set[int] = set()
    for at, header in closed_batches(fetched.records):
        while to_come and to_come[-1][0] < header.next_offset:
            aborting.add(to_come.pop()[1])
        if header.is_control:
            if header.producer_id in aborting and _aborts(fetched.records[at : at + header.batch_bytes]):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield at, header


def _aborts(control_batch: memoryview) -> bool:
    (marker,) = decode_batches(control_batch)
    return bool(marker.records) and marker.records[0].key == _ABORT_KEY
