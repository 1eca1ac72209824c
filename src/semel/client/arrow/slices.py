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
from semel.client.client import Fetched, LogClient
from semel.client.errors import CorruptRecords
from semel.client.places import Isolation, Slice
from semel.core.batch import HEADER_BYTES, BatchHeader
from semel.wire.errors import ProtocolError
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
) -> Iterator[Any]:
    """The records of a slice, in these columns and in the order of their offsets, as record batches of Arrow."""
    for fetched in client.fetches(wanted, isolation, may_lack_its_end=may_lack_its_end):
        try:
            for layout in layouts(fetched, wanted):
                yield from rows_of(layout, wanted, columns)
        except ProtocolError as error:
            where = f"partition {wanted.topic_partition} before offset {fetched.next_offset}"
            raise CorruptRecords(f"{where}: {error}") from None


def layouts(fetched: Fetched, wanted: Slice) -> Iterator[Layout]:
    """The records to show, in groups, including those outside the slice that share a batch with one inside."""
    shown = (
        (at, header)
        for at, header in committed_batches(fetched)
        if header.base_offset < wanted.end and header.next_offset > wanted.start and header.record_count
    )
    for codec, batches in groupby(shown, key=_is_compressed):
        yield from (_opened_layouts if codec else _plain_layouts)(fetched.records, batches)


def _is_compressed(placed: _Placed) -> bool:
    return placed[1].codec != 0


def _plain_layouts(records: memoryview, batches: Iterable[_Placed]) -> Iterator[Layout]:
    """Layouts of batches that are not compressed, in the fetched bytes themselves."""
    regions: list[Region] = []
    size = 0
    for at, header in batches:
        regions.append(Region(header, at + HEADER_BYTES, at + header.batch_bytes))
        size += header.batch_bytes
        if size >= LAYOUT_BYTES:
            yield Layout(records, regions)
            regions, size = [], 0
    if regions:
        yield Layout(records, regions)


def _opened_layouts(records: memoryview, batches: Iterable[_Placed]) -> Iterator[Layout]:
    """Layouts of compressed batches, decompressed into memory of their own."""
    regions: list[Region] = []
    plain = bytearray()
    for at, header in batches:
        start = len(plain)
        plain += opened(records[at : at + header.batch_bytes], header.attributes, DECOMPRESSED_BYTES_MAX)
        regions.append(Region(header, start, len(plain)))
        if len(plain) >= LAYOUT_BYTES:
            yield Layout(plain, regions)
            regions, plain = [], bytearray()
    if regions:
        yield Layout(plain, regions)
