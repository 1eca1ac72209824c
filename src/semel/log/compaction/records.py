"""Reads of each record in a batch only what compaction needs: its place, its offset, its key, and whether it has a
value.

This is the inner loop of compaction, which runs for every record of a topic, so it has code in place of calls: a number
of one or two bytes is read where it stands, and only longer ones by a call. The
bytes may be anything, because the broker accepts them unread: bytes that are no record raise `ProtocolError`, the
decompressed size never exceeds the caller's limit, and the number of records never exceeds that of the header. Nothing
here decides which records stay.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

from semel.log.core.record_walk import LONG_SHIFT_MAX, unsigned, walk_records
from semel.wire.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Buffer
from semel.wire.errors import ProtocolError
from semel.wire.records import opened_in_place
from semel.wire.refusals import INVALID_RECORD, Refused
from semel.wire.steps import Door, Steps, elsewhere

# The sizes, compressed and decompressed, up to which the event loop decompresses a batch; more takes up to 200 ms, in a
# thread.
_COMPRESSED_HERE_MAX: Final = 256 * 1024
_OPENED_HERE_MAX: Final = 1024 * 1024
# How many small batches may be decompressed at once: 64 MiB, as much as a single large one may take by default.
SMALL_AT_ONCE: Final = 64

# How many records without a key an answer names: nobody needs more to see the mistake.
KEYLESS_NAMED_MAX: Final = 1_000

# Decompressed records, and the keys in them.
Bytes = TypeVar("Bytes", bytes, memoryview)

# Where a record begins and ends among all, its offset minus the batch's, its key, and whether it has a value.
FoundRecord = tuple[int, int, int, Bytes | None, bool]


class KeylessRecords(Refused):
    """A batch has records without a key, which compaction could not handle; the first ones, by their places in the
    batch.
    """

    def __init__(self, places: list[int]) -> None:
        super().__init__(INVALID_RECORD, "the topic is compacted, and takes no record without a key")
        self.places = places


def records_in(records: Bytes, header: BatchHeader) -> Iterator[FoundRecord[Bytes]]:
    """All records of the batch with this header, from its decompressed bytes."""
    at = 0
    size = len(records)
    # The varint of an offset that lies beyond the batch is as large as this, or larger.
    too_large = 2 * header.last_offset_delta + 1
    try:
        for left in range(header.record_count, 0, -1):
            if at >= size:
                raise ProtocolError(f"{left} records less than it says")
            begin = at
            byte = records[at]
            if byte < 0x80:
                at += 1
            elif (second := records[at + 1]) < 0x80:
                byte += (second << 7) - 0x80
                at += 2
            else:
                byte, at = unsigned(records, at, LONG_SHIFT_MAX)
            end = at + (byte >> 1)
            if byte & 1 or end > size:
                raise ProtocolError("no record")
            # One byte of attributes, then the timestamp.
            at += 1
            while records[at] >= 0x80:
                at += 1
            at += 1
            offset_delta = records[at]
            if offset_delta < 0x80:
                at += 1
            elif (second := records[at + 1]) < 0x80:
                offset_delta += (second << 7) - 0x80
                at += 2
            else:
                offset_delta, at = unsigned(records, at, LONG_SHIFT_MAX)
            if offset_delta & 1 or offset_delta >= too_large:
                raise ProtocolError("an offset beyond its batch")
            byte = records[at]
            if byte < 0x80:
                at += 1
            else:
                byte, at = unsigned(records, at, LONG_SHIFT_MAX)
            if not byte & 1:
                key_at = at
                at += byte >> 1
                key = records[key_at:at]
            elif byte == 1:
                key = None
            else:
                raise ProtocolError("a key of no length")
            # The length -1, which means no value, is encoded as the byte 1.
            has_value = records[at] != 1
            if at >= end:
                raise ProtocolError("a record that goes beyond its end")
            yield begin, end, offset_delta >> 1, key, has_value
            at = end
        if at < size:
            raise ProtocolError("more bytes than records")
    except (IndexError, ProtocolError) as error:
        raise ProtocolError(f"the batch at offset {header.base_offset}: {error}") from error


class KeyChecks:
    """Checks the batches that clients send to compacted topics, and decompresses them for that.

    A batch stays decompressed while it is checked, which takes many turns of the event loop if it has very many
    records, and every connection may send one. So only a limited number of small batches and one large batch are
    decompressed at once, of all clients together; the others wait.
    """

    def __init__(self, opened_bytes_max: int, *, small_at_once: int = SMALL_AT_ONCE) -> None:
        self._opened_bytes_max = opened_bytes_max
        self._small = Door(small_at_once)
        self._large = Door(1)

    def check(self, batch: Buffer, header: BatchHeader) -> Steps[None]:
        """Refuse a batch if a record has no key, or the batch cannot be decompressed, or has bytes that are no records.

        A batch that cannot be read could never be compacted, and only here it is noticed in time.
        """
        try:
            if not header.attributes & CODEC_MASK:
                # The batch is not compressed: its records are in the request, and have been walked.
                yield from _check_records(memoryview(batch)[HEADER_BYTES:], header)
                return
            is_checked = False
            if len(batch) <= _COMPRESSED_HERE_MAX:
                is_checked = yield from self._small.inside(self._check_small(batch, header))
            if not is_checked:
                yield from self._large.inside(self._check_large(batch, header))
        except ProtocolError as error:
            raise Refused(INVALID_RECORD, f"the topic is compacted, and the batch cannot be opened: {error}") from error

    def _check_small(self, batch: Buffer, header: BatchHeader) -> Steps[bool]:
        """False if the batch was not small, which only decompressing it shows."""
        try:
            records = opened_in_place(batch, header.attributes, min(self._opened_bytes_max, _OPENED_HERE_MAX))
        except ProtocolError:
            if self._opened_bytes_max <= _OPENED_HERE_MAX:
                raise
            return False
        yield from _check_opened(records, header)
        return True

    def _check_large(self, batch: Buffer, header: BatchHeader) -> Steps[None]:
        records = yield from elsewhere(lambda: opened_in_place(batch, header.attributes, self._opened_bytes_max))
        yield from _check_opened(records, header)


def _check_opened(records: bytes | memoryview, header: BatchHeader) -> Steps[None]:
    yield from walk_records(records, header)
    yield from _check_records(records, header)


def _check_records(records: bytes | memoryview, header: BatchHeader) -> Steps[None]:
    places: list[int] = []
    for place, record in enumerate(records_in(memoryview(records), header)):
        if record[3] is None:
            places.append(place)
            if len(places) == KEYLESS_NAMED_MAX:
                break
        yield 1
    if places:
        raise KeylessRecords(places)


def timestamp_delta(records: bytes, begin: int) -> tuple[int, int, int, int]:
    """The length of the record at `begin`, where its body begins, its timestamp delta, and where that ends."""
    length, attributes_at = unsigned(records, begin, LONG_SHIFT_MAX)
    delta, end = unsigned(records, attributes_at + 1, LONG_SHIFT_MAX)
    return length >> 1, attributes_at, delta >> 1 ^ -(delta & 1), end
