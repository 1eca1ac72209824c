"""Where each record of some batches is, and each field in it: computed for all records at once, without a Python object
for each.

Only one step goes from record to record, because only a record's length says where the next one begins; all others are
done for every record at once. The bytes may be anything: every place is checked to be inside its record before it is
used, and bytes that are no record raise `ProtocolError`. This file must never copy a key or a value.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semel.wire.batch import RECORD_BYTES_MIN, BatchHeader
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer

Integers = NDArray[np.int64]
Octets = NDArray[np.uint8]

# A 64-bit number in pieces of seven bits takes ten bytes, the last of which has one bit.
_SHIFT_MAX: Final = 63
# A length of 32 bits takes five bytes.
_LENGTH_SHIFT_MAX: Final = 28

# The signed number that each single byte stands for.
_ZIGZAG: Final[Integers] = np.array([number >> 1 ^ -(number & 1) for number in range(0x80)], dtype=np.int64)


class Region(NamedTuple):
    """The records of one batch, decompressed, in a buffer that may hold others."""

    header: BatchHeader
    start: int
    end: int


class Fields(NamedTuple):
    """Where the bytes of a field begin in each record, and how many there are; -1 for null."""

    starts: Integers
    lengths: Integers


class Layout:
    """All records of some regions, in their order. The arrays have one element for each record."""

    def __init__(self, buffer: Buffer, regions: Sequence[Region]) -> None:
        self.headers = [region.header for region in regions]
        self._counts = np.array([header.record_count for header in self.headers], dtype=np.int64)
        try:
            starts = np.array(_record_starts(buffer, regions), dtype=np.int64)
            self.octets: Octets = np.frombuffer(buffer, dtype=np.uint8)
            self._lay_out(starts, np.array([region.end for region in regions], dtype=np.int64))
        except IndexError:
            raise ProtocolError("a record that goes on after the end of all records") from None

    def __len__(self) -> int:
        return len(self.offsets)

    def of_batch(self, values: Sequence[int]) -> Integers:
        """Repeat the value of each batch for each of its records."""
        return np.repeat(np.array(values, dtype=np.int64), self._counts)

    def _lay_out(self, starts: Integers, region_ends: Integers) -> None:
        sizes, bodies = varints(self.octets, starts)
        self._check(sizes)
        self.ends = bodies + sizes
        if bool((self.ends > np.repeat(region_ends, self._counts)).any()):
            raise ProtocolError("a record that goes on after the end of its batch")
        # One byte of attributes; the format uses none of them.
        self.timestamp_deltas, at = varints(self.octets, bodies + 1)
        self.offset_deltas, at = varints(self.octets, at)
        self._check_offsets()
        self.keys, at = self._fields(at)
        self.values, at = self._fields(at)
        self.header_counts, self.header_starts = varints(self.octets, at)
        self._check(self.header_counts)
        is_short = self.header_starts < self.ends
        if bool((is_short & (self.header_counts == 0)).any() or (self.header_starts > self.ends).any()):
            raise ProtocolError("a record whose fields do not fill it")
        if bool((2 * self.header_counts > self.ends - self.header_starts).any()):
            raise ProtocolError("a record that announces more headers than it has bytes for")

    def _fields(self, at: Integers) -> tuple[Fields, Integers]:
        lengths, starts = varints(self.octets, at)
        return Fields(starts, lengths), starts + self.bounded(lengths, starts, self.ends)

    def bounded(self, lengths: Integers, starts: Integers, ends: Integers) -> Integers:
        """The lengths, with 0 for null; raises unless all fields fit between `starts` and `ends`."""
        if len(lengths) and (int(lengths.min()) < -1 or bool((lengths > ends - starts).any())):
            raise ProtocolError("a field that is longer than its record")
        return np.maximum(lengths, 0)

    def _check(self, counts: Integers) -> None:
        if len(counts) and not 0 <= int(counts.min()) <= int(counts.max()) <= len(self.octets):
            raise ProtocolError("a record with a negative length, or one beyond all bytes that there are")

    def _check_offsets(self) -> None:
        deltas = self.offset_deltas
        last_deltas = self.of_batch([header.last_offset_delta for header in self.headers])
        self.offsets = self.of_batch([header.base_offset for header in self.headers]) + deltas
        if bool(((deltas < 0) | (deltas > last_deltas)).any()):
            raise ProtocolError("a record whose offset is not one of its batch")
        if bool((np.diff(self.offsets) <= 0).any()):
            raise ProtocolError("records that are not in the order of their offsets")


def varints(octets: Octets, at: Integers) -> tuple[Integers, Integers]:
    """The signed variable-length numbers at these places, and the places after them."""
    if not len(at):
        return at, at
    octet = octets[at]
    after = at + 1
    if int(octet.max()) < 0x80:
        return _ZIGZAG[octet], after
    numbers = (octet & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(octet >= 0x80)
    for shift in range(7, _SHIFT_MAX + 1, 7):
        places = after[longer]
        octet = octets[places]
        if shift == _SHIFT_MAX and int(octet.max()) > 1:
            break
        numbers[longer] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] = places + 1
        longer = longer[octet >= 0x80]
        if not len(longer):
            return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64), after
    raise ProtocolError("a variable-length number is longer than ten bytes")


def _record_starts(buffer: Buffer, regions: Sequence[Region]) -> "array[int]":
    """Where each record begins, going from length to length. Negative lengths are found later.

    This is the only loop over records, so it has code in place of calls: nearly all lengths take one byte or two.
    """
    starts = array("q")
    add = starts.append
    for header, at, end in regions:
        if not 0 <= header.record_count * RECORD_BYTES_MIN <= end - at:
            raise ProtocolError(f"{header.record_count} records in {end - at} bytes")
        for _ in range(header.record_count):
            add(at)
            octet = buffer[at]
            if octet < 0x80:
                at += 1 + (octet >> 1)
                continue
            second = buffer[at + 1]
            if second < 0x80:
                at += 2 + ((octet & 0x7F | second << 7) >> 1)
            else:
                at = _behind_long_record(buffer, at)
        if at != end:
            raise ProtocolError(f"the batch at offset {header.base_offset} has bytes that are no records")
    return starts


def _behind_long_record(buffer: Buffer, at: int) -> int:
    size = 0
    for place, shift in enumerate(range(0, _LENGTH_SHIFT_MAX + 1, 7), at):
        octet = buffer[place]
        size |= (octet & 0x7F) << shift
        if octet < 0x80:
            return place + 1 + (size >> 1)
    raise ProtocolError("the length of a record is longer than five bytes")
