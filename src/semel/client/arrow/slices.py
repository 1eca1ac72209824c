"""A slice of the log as record batches of Arrow: fetched, decompressed, and without aborted records.

While a fetch is decoded, the next one is under way. Memory holds one fetch, and one layout of its batches, at a time.
This file must never show a record of an aborted transaction to a reader of committed records, nor a marker to any
reader.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from semel.client.aborted import committed_batches
from semel.client.arrow.columns import rows_of
from semel.client.arrow.layout import Layout, Region
from semel.client.bad_batches import BadBatch, Report, refuse
from semel.client.client import Fetched, LogClient
from semel.client.errors import CorruptRecords
from semel.client.places import Isolation, Slice
from semel.wire.batch import HEADER_BYTES, BatchHeader
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer
from semel.wire.records import DECOMPRESSED_BYTES_MAX, opened

# The bytes of records that are laid out at once, or one batch if that is larger: enough that the fixed cost of a layout
# hardly counts, and few enough that the arrays with a number for each record stay small.
LAYOUT_BYTES: Final = 4 * 1024 * 1024

# Where a batch begins among others, and its header.
_Placed = tuple[int, BatchHeader]


def read_slice(
    client: LogClient,
    wanted: Slice,
    columns: Sequence[str],
    isolation: Isolation = Isolation.READ_COMMITTED,
    *,
    may_lack_its_end: bool = False,
    report: Report = refuse,
) -> Iterator[Any]:
    """The records of a slice, in these columns and in the order of their offsets, as record batches of Arrow. A batch
    of the log that cannot be read is reported, and left out if the report returns."""
    for fetched in client.fetches(wanted, isolation, may_lack_its_end=may_lack_its_end):
        try:
            yield from rows(fetched, wanted, columns, report)
        except ProtocolError as error:
            raise CorruptRecords(f"partition {wanted.topic_partition}: {error}") from None


def rows(fetched: Fetched, wanted: Slice, columns: Sequence[str], report: Report = refuse) -> Iterator[Any]:
    """The rows of one fetch."""
    shown = (
        (at, header)
        for at, header in committed_batches(fetched)
        if header.base_offset < wanted.end and header.next_offset > wanted.start and header.record_count
    )
    for codec, batches in groupby(shown, key=_is_compressed):
        for plain, regions in _opened(fetched.records, batches, report) if codec else _plain(batches):
            buffer = fetched.records if plain is None else plain
            try:
                # All of them before the first is given, or some would be given twice.
                made = [*rows_of(Layout(buffer, regions), wanted, columns)]
            except ProtocolError:
                made = [one for region in regions for one in _rows_in(buffer, region, wanted, columns, report)]
            yield from made


def _rows_in(buffer: Buffer, region: Region, wanted: Slice, columns: Sequence[str], report: Report) -> list[Any]:
    """The rows of one batch, if it can be read."""
    try:
        return [*rows_of(Layout(buffer, [region]), wanted, columns)]
    except ProtocolError as error:
        report(BadBatch(region.header, str(error)))
        return []


def _is_compressed(placed: _Placed) -> bool:
    return placed[1].codec != 0


def _plain(batches: Iterable[_Placed]) -> Iterator[tuple[None, list[Region]]]:
    """Batches that are not compressed, some at a time, where they are among the fetched bytes."""
    regions: list[Region] = []
    size = 0
    for at, header in batches:
        regions.append(Region(header, at + HEADER_BYTES, at + header.batch_bytes))
        size += header.batch_bytes
        if size >= LAYOUT_BYTES:
            yield None, regions
            regions, size = [], 0
    if regions:
        yield None, regions


def _opened(
    records: memoryview, batches: Iterable[_Placed], report: Report
) -> Iterator[tuple[bytearray, list[Region]]]:
    """Compressed batches, some at a time, decompressed into memory of their own."""
    regions: list[Region] = []
    plain = bytearray()
    for at, header in batches:
        start = len(plain)
        try:
            plain += opened(records[at : at + header.batch_bytes], header.attributes, DECOMPRESSED_BYTES_MAX)
        except ProtocolError as error:
            report(BadBatch(header, str(error)))
            continue
        regions.append(Region(header, start, len(plain)))
        if len(plain) >= LAYOUT_BYTES:
            yield plain, regions
            regions, plain = [], bytearray()
    if regions:
        yield plain, regions
