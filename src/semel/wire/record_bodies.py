"""Records as bytes: the offset and the time of each, and everything after them as one unread piece.

So a record is copied from one log to another unchanged, whatever it contains. The broker must never use this to serve
requests.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from semel.wire.batch import APPEND_TIME_BIT, BatchHeader
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer
from semel.wire.records import DECOMPRESSED_BYTES_MAX, compressed, opened, read_varint, varint

# One byte, of which no bit is in use.
_ATTRIBUTES_BYTES: Final = 1


class RecordBody(NamedTuple):
    """A record; the content is its encoded key, value and headers."""

    offset: int
    timestamp_ms: int
    content: bytes


def record_bodies(batch: Buffer, header: BatchHeader) -> Iterator[RecordBody]:
    """The records of one batch whose checksum has been checked before; ProtocolError if they are damaged."""
    payload = opened(batch, header.attributes, DECOMPRESSED_BYTES_MAX)
    append_time_ms = header.max_timestamp if header.attributes & APPEND_TIME_BIT else None
    at = 0
    try:
        for _ in range(header.record_count):
            size, at = read_varint(payload, at)
            end = at + size
            if size < 0 or end > len(payload):
                raise ProtocolError(f"a record of {size} bytes where {len(payload) - at} bytes are left")
            timestamp_delta, at = read_varint(payload, at + _ATTRIBUTES_BYTES)
            offset_delta, at = read_varint(payload, at)
            timestamp_ms = header.base_timestamp + timestamp_delta if append_time_ms is None else append_time_ms
            yield RecordBody(header.base_offset + offset_delta, timestamp_ms, payload[at:end])
            at = end
    except IndexError as error:
        raise ProtocolError(f"a record in the batch at offset {header.base_offset}: {error}") from error


def payload_of(bodies: Iterable[RecordBody], base_timestamp_ms: int, codec: int) -> Buffer:
    """The payload of a batch with these records, at consecutive offsets."""
    payload = bytearray()
    for offset_delta, body in enumerate(bodies):
        deltas = varint(body.timestamp_ms - base_timestamp_ms) + varint(offset_delta)
        payload += varint(_ATTRIBUTES_BYTES + len(deltas) + len(body.content)) + b"\0" + deltas + body.content
    return compressed(codec, payload)


def content_of(key: bytes, value: bytes) -> bytes:
    """The content of a record without headers."""
    return varint(len(key)) + key + varint(len(value)) + value + varint(0)


def key_and_value(content: bytes) -> tuple[bytes | None, bytes | None]:
    """The key and the value in the content of a record."""
    key, at = _read_bytes(content, 0)
    value, _ = _read_bytes(content, at)
    return key, value


def _read_bytes(content: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(content, at)
    return (None, at) if size < 0 else (content[at : at + size], at + size)
