"""Goes through the records of a batch as a reader will, so that a batch which no reader can read is refused.

A batch that is not compressed is walked before it becomes part of the log: each record's length, offset, key, value and
headers have to fill exactly the bytes that the batch has. Clients send many records of one shape in a row. Where that
is so, the same byte of all of them is compared at once; every other record is walked by itself, in a loop that has code
in place of calls. The bytes may be anything: they are accepted, or refused with the place of the first wrong record.
Nothing here may sample: what was not looked at is not known.
"""

from typing import Final, NamedTuple

from semel.wire.batch import BatchHeader, Buffer
from semel.wire.refusals import INVALID_RECORD, INVALID_TIMESTAMP, Refused
from semel.wire.steps import Steps

# A 64-bit number in pieces of seven bits, and one of 32 bits.
LONG_SHIFT_MAX: Final = 63
_INT_SHIFT_MAX: Final = 28

_TIME_MIN: Final = -(1 << 63)
_TIME_MAX: Final = (1 << 63) - 1

# How many records in a row are compared at once: so many have their beginnings in a processor's nearer caches.
_ALIKE_MAX: Final = 1024
# Other requests go first after so many records that were walked one by one, or sixteen times as many that were alike:
# about 100 microseconds.
_RECORDS_PER_STEP: Final = 256
_ALIKE_PER_RECORD: Final = 16
_PIECES_PER_STEP: Final = 64

# The bytes of the numbers 0, 1, 2, ... as offset deltas: up to 63 they have one byte, up to 8191 two, then three. The
# bytes before the last one repeat after 8192 numbers.
_BLOCK: Final = 8192
_ONE_BYTE_MAX: Final = 63
_THREE_BYTES_MAX: Final = (1 << 20) - 1
_ONLY: Final = bytes(2 * number for number in range(_ONE_BYTE_MAX + 1))
_LOW: Final = bytes((2 * number) & 0x7F | 0x80 for number in range(_BLOCK))
_HIGH: Final = bytes(number >> 6 for number in range(_BLOCK))
_MIDDLE: Final = bytes((number >> 6) | 0x80 for number in range(_BLOCK))


class BadRecord(Refused):
    """A record that no reader could read; the whole batch is refused."""

    def __init__(self, place: int, what: str) -> None:
        super().__init__(INVALID_RECORD, f"record {place} of the batch: {what}")
        self.place = place
        self.what = what


class Times(NamedTuple):
    """The earliest and the latest timestamp of a batch's records."""

    earliest_ms: int
    latest_ms: int


def walk_records(records: Buffer, header: BatchHeader) -> Steps[Times]:
    """The times of the records, whose decompressed bytes these are; BadRecord if they are no records, or not as many
    as the header says, or their offsets are not 0, 1, 2, ...; Refused if a time has more than 64 bits.
    """
    data = bytes(records)
    size = len(data)
    count = header.record_count
    at = place = work = 0
    # The last timestamp and the last length, as they are encoded.
    time = last_length = -1
    earliest = latest = 0
    is_first = True
    try:
        while place < count:
            begin = at
            length = data[at]
            if length < 0x80:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                length += (second << 7) - 0x80
                at += 2
            else:
                length, at = unsigned(data, at, _INT_SHIFT_MAX)
            end = at + (length >> 1)
            if length & 1 or end > size:
                raise BadRecord(place, f"its length is wrong, or goes beyond the {size} bytes of all records")
            is_as_long = length == last_length
            last_length = length
            # One byte of attributes, none of which is in use.
            at_time = at + 1
            at_offset = at_time + 1
            if (byte := data[at_time]) >= 0x80:
                byte, at_offset = unsigned(data, at_time, LONG_SHIFT_MAX)
            if byte != time:
                time = byte
                delta = byte >> 1 ^ -(byte & 1)
                if is_first:
                    earliest = latest = delta
                    is_first = False
                elif delta > latest:
                    latest = delta
                elif delta < earliest:
                    earliest = delta
            offset = data[at_offset]
            if offset < 0x80:
                at = at_offset + 1
            elif (second := data[at_offset + 1]) < 0x80:
                offset += (second << 7) - 0x80
                at = at_offset + 2
            else:
                offset, at = unsigned(data, at_offset, _INT_SHIFT_MAX)
            if offset != place << 1:
                raise BadRecord(place, f"its offset delta is {offset >> 1 ^ -(offset & 1)}")
            at_key = at
            length = data[at]
            if length < 0x80:
                at += 1
            else:
                length, at = unsigned(data, at, _INT_SHIFT_MAX)
            if not length & 1:
                at += length >> 1
            elif length != 1:
                raise BadRecord(place, "its key has a negative length")
            at_value = at
            length = data[at]
            if length < 0x80:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                length += (second << 7) - 0x80
                at += 2
            else:
                length, at = unsigned(data, at, _INT_SHIFT_MAX)
            if not length & 1:
                at += length >> 1
            elif length != 1:
                raise BadRecord(place, "its value has a negative length")
            headers = data[at]
            at += 1
            if headers:
                at = _end_of_headers(data, at - 1, end, place)
            if at != end:
                raise BadRecord(place, f"its fields end at byte {at - begin}, and the record at byte {end - begin}")
            place += 1
            work += 1
            # Two records of one length: are there more of them, and alike in everything that counts?
            if is_as_long and not headers:
                stride = end - begin
                most = min(_ALIKE_MAX, count - place, (size - end) // stride)
                alike = _alike(data, (begin, at_time, at_offset, at_key, at_value, end), place, most)
                place += alike
                at += alike * stride
                work += alike // _ALIKE_PER_RECORD
            if work >= _RECORDS_PER_STEP:
                work = 0
                yield _PIECES_PER_STEP
    except IndexError:
        raise BadRecord(place, f"it goes beyond the {size} bytes of all records") from None
    if at != size:
        raise BadRecord(count - 1, f"{size - at} bytes follow it, and the batch counts no more records")
    times = Times(header.base_timestamp + earliest, header.base_timestamp + latest)
    if times.earliest_ms < _TIME_MIN or times.latest_ms > _TIME_MAX:
        raise Refused(INVALID_TIMESTAMP, "a record has a timestamp of more than 64 bits")
    return times


def _alike(data: bytes, shape: tuple[int, int, int, int, int, int], place: int, most: int) -> int:
    """How many of the records from `place` on have the time and all lengths of the record before them, whose shape is
    given, have no headers, and the offsets that follow."""
    begin, at_time, at_offset, at_key, at_value, end = shape
    offsets = _offsets(at_key - at_offset, place, most)
    if offsets is None:
        return 0
    most = min(most, len(offsets[0]))
    stride = end - begin
    # The bytes that are the same in all: the length of the record, its time, the lengths of its key and of its value,
    # and the number of its headers.
    after_key = at_key + _varint_bytes(data, at_key)
    after_value = at_value + _varint_bytes(data, at_value)
    lengths = (*range(begin, at_time - 1), *range(at_key, after_key), *range(at_value, after_value))
    for at in (*range(at_time, at_offset), *lengths, end - 1):
        column = data[at + stride : at + stride * most + 1 : stride]
        same = data[at : at + 1]
        if column != same * most:
            most -= len(column.lstrip(same))
    for at, expected in enumerate(offsets, at_offset):
        column = data[at + stride : at + stride * most + 1 : stride]
        if column != expected[:most]:
            most = next(place for place in range(most) if column[place] != expected[place])
    return most


def _offsets(width: int, place: int, most: int) -> list[bytes] | None:
    """The offset deltas from `place` on, as the columns of their bytes; None unless they have so many bytes."""
    first = place % _BLOCK
    last = min(first + most, _BLOCK)
    if place <= _ONE_BYTE_MAX:
        return [_ONLY[place : place + most]] if width == 1 else None
    if place < _BLOCK:
        return [_LOW[first:last], _HIGH[first:last]] if width == 2 else None
    if place <= _THREE_BYTES_MAX and width == 3:
        return [_LOW[first:last], _MIDDLE[first:last], bytes([place // _BLOCK]) * (last - first)]
    return None


def _varint_bytes(data: bytes, at: int) -> int:
    """How many bytes a number has that was read before."""
    size = 1
    while data[at] >= 0x80:
        at += 1
        size += 1
    return size


def _end_of_headers(data: bytes, at: int, end: int, place: int) -> int:
    """Where the last header of a record ends, whose number of headers begins at `at`."""
    headers, at = unsigned(data, at, _INT_SHIFT_MAX)
    if headers & 1 or headers >> 1 > end - at:
        raise BadRecord(place, "it announces more headers than it has bytes for")
    for _ in range(headers >> 1):
        length, at = unsigned(data, at, _INT_SHIFT_MAX)
        if length & 1:
            raise BadRecord(place, "it has a header without a name")
        length, at = unsigned(data, at + (length >> 1), _INT_SHIFT_MAX)
        if not length & 1:
            at += length >> 1
        elif length != 1:
            raise BadRecord(place, "a header's value has a negative length")
        if at > end:
            raise BadRecord(place, "its headers go beyond its end")
    return at


def unsigned(data: bytes | memoryview, at: int, shift_max: int) -> tuple[int, int]:
    """A number in pieces of seven bits, the lowest first, and where it ends; IndexError if it has too many pieces, or
    the data ends before it.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > shift_max:
            raise IndexError("a variable-length number is too long")
