"""Lengths, strings and tagged fields on the wire, for the hand-written codecs of this package.

A reader takes the buffer and a position, and returns the value and the position after it. It checks the bounds itself,
because slicing a memoryview beyond its end raises no error. A reader may raise only `ProtocolError` and the errors in
`MALFORMED`, which the codecs turn into `ProtocolError`. This file must never allocate memory for a length that it has
not checked.
"""

import struct
from typing import Final

from semel.wire.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")

UUID_BYTES: Final = 16

# The errors that Python itself raises when a read goes over the end of a buffer, or text is not UTF-8.
MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError)

# A length is a 32-bit number, so it takes at most five bytes of seven bits.
_UNSIGNED_VARINT_BYTES_MAX: Final = 5

# Kafka gives no struct more than five tags; reading a million of them would take seconds before any check.
TAGGED_FIELDS_MAX: Final = 100


def read_unsigned_varint(buffer: memoryview, at: int) -> tuple[int, int]:
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    second = buffer[at + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, at + 2
    value = byte & 0x7F | (second & 0x7F) << 7
    for place in range(2, _UNSIGNED_VARINT_BYTES_MAX):
        byte = buffer[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise ProtocolError(f"a length of {value} does not fit 31 bits")
            return value, at + place + 1
    raise ProtocolError("a variable-length number is longer than five bytes")


def unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_nullable_length(buffer: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """The length of an array or of bytes, -1 for null; at most the number of bytes left in the buffer.

    Every element takes a byte or more, so the same limit is right for arrays.
    """
    if flexible:
        length, at = read_unsigned_varint(buffer, at)
        length -= 1
    else:
        length = INT32.unpack_from(buffer, at)[0]
        at += 4
        if length < -1:
            raise ProtocolError(f"a negative length of {length}")
    if length > len(buffer) - at:
        raise ProtocolError(f"a length of {length} where {len(buffer) - at} bytes are left")
    return length, at


def read_length(buffer: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """The length of an array that must not be null."""
    length, at = read_nullable_length(buffer, at, flexible)
    if length < 0:
        raise ProtocolError("an array is null that must not be null")
    return length, at


def read_nullable_string(buffer: memoryview, at: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length, at = read_unsigned_varint(buffer, at)
        length -= 1
    else:
        length = INT16.unpack_from(buffer, at)[0]
        at += 2
    if length < 0:
        if length < -1:
            raise ProtocolError(f"a negative string length of {length}")
        return None, at
    end = at + length
    if end > len(buffer):
        raise ProtocolError(f"a string of {length} bytes where {len(buffer) - at} bytes are left")
    return str(buffer[at:end], "utf-8"), end


def read_string(buffer: memoryview, at: int, flexible: bool) -> tuple[str, int]:
    text, at = read_nullable_string(buffer, at, flexible)
    if text is None:
        raise ProtocolError("a string is null that must not be null")
    return text, at


def read_uuid(buffer: memoryview, at: int) -> tuple[bytes, int]:
    end = at + UUID_BYTES
    if end > len(buffer):
        raise ProtocolError(f"an id of {UUID_BYTES} bytes where {len(buffer) - at} bytes are left")
    return bytes(buffer[at:end]), end


def read_tagged_field_count(buffer: memoryview, at: int) -> tuple[int, int]:
    """How many tagged fields a struct has, known or not."""
    count, at = read_unsigned_varint(buffer, at)
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields in one struct, no more than {TAGGED_FIELDS_MAX} are read")
    return count, at


def skip_tagged_fields(buffer: memoryview, at: int) -> int:
    """The position after the tagged fields. An unknown tag is no error: tagged fields exist so that old readers can
    skip new fields.
    """
    count, at = read_tagged_field_count(buffer, at)
    for _ in range(count):
        _, at = read_unsigned_varint(buffer, at)
        size, at = read_unsigned_varint(buffer, at)
        if size > len(buffer) - at:
            raise ProtocolError(f"a tagged field of {size} bytes where {len(buffer) - at} bytes are left")
        at += size
    return at


def nullable_string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else INT16.pack(len(encoded))) + encoded


def length(count: int, flexible: bool) -> bytes:
    """The length of an array or of bytes; -1 for null."""
    return unsigned_varint(count + 1) if flexible else INT32.pack(count)
