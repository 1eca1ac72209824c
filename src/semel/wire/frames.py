"""Frames: the four bytes of size around every message, and the headers of requests and responses.

This file does no IO: the broker collects bytes in its own buffer and asks here for the size and the header of the next
frame, and a client passes the function that receives. Request headers are version 1, or 2 for flexible versions (only
ControlledShutdown, which Apache Kafka 4 no longer has, used header 0). Header 2 still carries the client id as a legacy
string, and the response to ApiVersions always has header 0, so that a client can read it before it knows the broker's
versions. This file must never look into a body.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from semel.wire.errors import ProtocolError
from semel.wire.primitives import INT32, MALFORMED, Buffer, skip_tagged_fields, unsigned_varint
from semel.wire.versions import API_VERSIONS, is_flexible

A = TypeVar("A")

SIZE_BYTES: Final = 4

# The same few client ids come with every request. The cache limits their number and length, because clients choose
# them.
_CLIENT_IDS_CACHED_MAX: Final = 1024
_CLIENT_ID_CACHED_BYTES_MAX: Final = 256

_REQUEST_HEADER: Final = struct.Struct(">hhih")
_RESPONSE_PREFIX: Final = struct.Struct(">ii")
_RESPONSE_PREFIX_FLEXIBLE: Final = struct.Struct(">iiB")

_client_ids: dict[bytes, str] = {}


# A NamedTuple's own constructor takes several times as long.
_new = tuple.__new__


class RequestHeader(NamedTuple):
    """The sender and the kind of a request, and where in the frame its body starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


# The first bytes of a TLS alert and handshake; taken for the size of a frame, both mean more than 350 MB.
_TLS_RECORDS: Final = (0x1503, 0x1603)


def frame_size(buffer: Buffer, offset: int, frame_bytes_max: int) -> int:
    """How many bytes follow the size at `offset`; all four bytes of the size must be there."""
    try:
        size: int = INT32.unpack_from(buffer, offset)[0]
    except struct.error as error:
        raise ProtocolError("a frame's size takes four bytes") from error
    if size < 0:
        raise ProtocolError(f"a frame of negative size {size}")
    if size >> 16 in _TLS_RECORDS:
        raise ProtocolError("bytes of TLS where a frame begins: the other side speaks TLS here, and this side does not")
    if size > frame_bytes_max:
        raise ProtocolError(f"a frame of {size} bytes is larger than {frame_bytes_max}")
    return size


def read_frame(receive_into: Callable[[memoryview], int], frame_bytes_max: int) -> bytearray:
    """The next frame, without its size, from a `recv_into` that waits; ConnectionResetError if the stream ends
    before.
    """
    return _read(receive_into, frame_size(_read(receive_into, SIZE_BYTES), 0, frame_bytes_max))


def _read(receive_into: Callable[[memoryview], int], size: int) -> bytearray:
    received = bytearray(size)
    missing = memoryview(received)
    while missing:
        count = receive_into(missing)
        if count == 0:
            raise ConnectionResetError(0, "the broker closed it")
        missing = missing[count:]
    return received


def parse_request_header(frame: Buffer) -> RequestHeader:
    """The header of a frame, without its size.

    The header is parsed even if its API or version is not served, because the answer needs the correlation id.
    """
    try:
        api_key, api_version, correlation_id, client_id_size = _REQUEST_HEADER.unpack_from(frame)
        body = 10
        if client_id_size < 0:
            if client_id_size != -1:
                raise ProtocolError(f"a negative client id length of {client_id_size}")
            client_id = None
        else:
            body += client_id_size
            if body > len(frame):
                raise ProtocolError(f"a client id of {client_id_size} bytes where {len(frame) - 10} bytes are left")
            encoded = bytes(frame[10:body])
            client_id = _client_ids.get(encoded)
            if client_id is None:
                client_id = _decode_client_id(encoded)
        if is_flexible(api_key, api_version):
            # Nearly every client sends an empty list of tagged fields.
            body = body + 1 if frame[body] == 0 else skip_tagged_fields(memoryview(frame), body)
    except MALFORMED as error:
        raise ProtocolError(f"a request header in {len(frame)} bytes: {error}") from error
    return _new(RequestHeader, (api_key, api_version, correlation_id, client_id, body))


def _decode_client_id(encoded: bytes) -> str:
    client_id = encoded.decode()
    if len(encoded) <= _CLIENT_ID_CACHED_BYTES_MAX:
        if len(_client_ids) >= _CLIENT_IDS_CACHED_MAX:
            _client_ids.clear()
        _client_ids[encoded] = client_id
    return client_id


def response_prefix(api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """The bytes in front of a response's body: the frame's size and the response header."""
    if is_flexible(api_key, version) and api_key != API_VERSIONS:
        return _RESPONSE_PREFIX_FLEXIBLE.pack(body_bytes + 5, correlation_id, 0)
    return _RESPONSE_PREFIX.pack(body_bytes + 4, correlation_id)


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id of a response frame, without its size, and where its body starts."""
    try:
        correlation_id: int = INT32.unpack_from(frame)[0]
        if is_flexible(api_key, version) and api_key != API_VERSIONS:
            return correlation_id, skip_tagged_fields(memoryview(frame), 4)
    except MALFORMED as error:
        raise ProtocolError(f"a response header in {len(frame)} bytes: {error}") from error
    return correlation_id, 4


def read_response(
    api_key: int, version: int, frame: Buffer, name: str, read_body: Callable[[int, memoryview, int], A]
) -> A:
    """The result of `read_body`, which gets the version, a view of the frame and the start of the body; ProtocolError
    if the frame ends too early.
    """
    view = memoryview(frame)
    try:
        _, at = parse_response_header(api_key, version, view)
        return read_body(version, view, at)
    except MALFORMED as error:
        raise ProtocolError(f"an answer to {name} {version} in {len(view)} bytes: {error}") from error


def request_prefix(api_key: int, version: int, correlation_id: int, client_id: str | None, body_bytes: int) -> bytes:
    """The bytes in front of a request's body: the frame's size and the request header."""
    encoded = b"" if client_id is None else client_id.encode()
    client_id_size = -1 if client_id is None else len(encoded)
    tagged_fields = unsigned_varint(0) if is_flexible(api_key, version) else b""
    size = _REQUEST_HEADER.size + len(encoded) + len(tagged_fields) + body_bytes
    header = _REQUEST_HEADER.pack(api_key, version, correlation_id, client_id_size)
    return INT32.pack(size) + header + encoded + tagged_fields
