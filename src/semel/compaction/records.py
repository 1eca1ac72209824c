"""Batches opened as far as compaction needs it: where each record lies, its offset, its key, whether it has a value.

This is the inner loop of compaction, and it runs for every record of a topic, so it spells out what could be calls. The
bytes may be anything at all, because the broker took them as they came: what is no record raises `ProtocolError`, and
neither the size of what is decompressed nor the number of records ever goes beyond what the caller and the batch's
header say. Nothing here decides which records stay.
"""

from collections.abc import Iterator
from typing import Final

from semel.core.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Buffer
from semel.core.refusals import INVALID_RECORD, Refused
from semel.core.steps import Door, Steps, elsewhere
from semel.wire.errors import ProtocolError
from semel.wire.records import opened_in_place

# A 64-bit number in pieces of seven bits takes ten bytes.
_SHIFT_MAX: Final = 63

# What is opened on the event loop, compressed and decompressed; more takes up to 200 ms, so a thread opens it.
_COMPRESSED_HERE_MAX: Final = 256 * 1024
_OPENED_HERE_MAX: Final = 1024 * 1024
# How many of those may be open at once: 64 MiB, which is what a single large one may take by default.
SMALL_AT_ONCE: Final = 64

# The records without a key that an answer names: nobody needs more of them to see what is wrong.
KEYLESS_NAMED_MAX: Final = 1_000

# Where a record begins and ends among all, its offset less the batch's, its key, and whether it has a value.
FoundRecord = tuple[int, int, int, bytes | memoryview | None, bool]


class KeylessRecords(Refused):
    """Records without a key, the first of them by their places in the batch: compaction would not know what to do."""

    def __init__(self, places: list[int]) -> None:
        super().__init__(INVALID_RECORD, "the topic is compacted, and takes no record without a key")
        self.places = places


def records_in(records: bytes | memoryview, header: BatchHeader) -> Iterator[FoundRecord]:
    """All records of a batch whose header this is, given what `semel.wire.records` made of it when it opened it."""
    at = 0
    size = len(records)
    left = header.record_count
    last_offset_delta = header.last_offset_delta
    try:
        while at < size:
            begin = at
            byte = records[at]
            if byte < 0x80:
                at += 1
            else:
                byte, at = _unsigned(records, at)
            end = at + (byte >> 1)
            if byte & 1 or end > size or left == 0:
                raise ProtocolError("no record")
            left -= 1
            # One byte of attributes, then the timestamp.
            at += 1
            while records[at] >= 0x80:
                at += 1
            at += 1
            offset_delta = records[at]
            if offset_delta < 0x80:
                at += 1
            else:
                offset_delta, at = _unsigned(records, at)
            if offset_delta & 1 or offset_delta >> 1 > last_offset_delta:
                raise ProtocolError("an offset beyond its batch")
            byte = records[at]
            if byte < 0x80:
                at += 1
            else:
                byte, at = _unsigned(records, at)
            if byte == 1:
                key = None
            elif byte & 1:
                raise ProtocolError("a key of no length")
            else:
                key = records[at : at + (byte >> 1)]
                at += byte >> 1
            # -1, for no value, is the byte 1.
            has_value = records[at] != 1
            if at >= end:
                raise ProtocolError("a record that goes beyond its end")
            yield begin, end, offset_delta >> 1, key, has_value
            at = end
    except (IndexError, ProtocolError) as error:
        raise ProtocolError(f"a record in the batch at offset {header.base_offset}: {error}") from error
    if left:
        raise ProtocolError(f"the batch at offset {header.base_offset} has {left} records less than it says")


class KeyChecks:
    """Looks through the batches that clients send to compacted topics, which are decompressed for that.

    A batch stays decompressed for as long as it is looked through, which is many turns of the event loop if it has very
    many records, and every connection may have one. So only few small ones and one large one are open at once, from all
    clients together; the others wait.
    """

    def __init__(self, opened_bytes_max: int, *, small_at_once: int = SMALL_AT_ONCE) -> None:
        self._opened_bytes_max = opened_bytes_max
        self._small = Door(small_at_once)
        self._large = Door(1)

    def check(self, batch: Buffer, header: BatchHeader) -> Steps[None]:
        """Refuse a batch if a record has no key, or the batch cannot be opened.

        What cannot be opened could never be compacted; and here, unlike anywhere else, it is noticed in time.
        """
        try:
            if not header.attributes & CODEC_MASK:
                # Nothing to open: the records lie in the request.
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
        """False if it was not small; nobody can tell beforehand."""
        try:
            records = opened_in_place(batch, header.attributes, min(self._opened_bytes_max, _OPENED_HERE_MAX))
        except ProtocolError:
            if self._opened_bytes_max <= _OPENED_HERE_MAX:
                raise
            return False
        yield from _check_records(records, header)
        return True

    def _check_large(self, batch: Buffer, header: BatchHeader) -> Steps[None]:
        records = yield from elsewhere(lambda: opened_in_place(batch, header.attributes, self._opened_bytes_max))
        yield from _check_records(records, header)


def _check_records(records: bytes | memoryview, header: BatchHeader) -> Steps[None]:
    places: list[int] = []
    for place, record in enumerate(records_in(records, header)):
        if record[3] is None:
            places.append(place)
            if len(places) == KEYLESS_NAMED_MAX:
                break
        yield 1
    if places:
        raise KeylessRecords(places)


def timestamp_delta(records: bytes, begin: int) -> tuple[int, int, int, int]:
    """The length of the record at `begin`, where its body begins, its timestamp delta, and where that ends."""
    length, attributes_at = _unsigned(records, begin)
    delta, end = _unsigned(records, attributes_at + 1)
    return length >> 1, attributes_at, delta >> 1 ^ -(delta & 1), end


def _unsigned(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number in pieces of seven bits, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _SHIFT_MAX:
            raise ProtocolError("a variable-length number is longer than ten bytes")
