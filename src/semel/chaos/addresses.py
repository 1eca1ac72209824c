"""Finds the addresses of brokers in answers, and replaces them by those of the proxy.

Clients connect to the addresses in the answers to Metadata, FindCoordinator and DescribeCluster, so without this they
would bypass the proxy. Only the part of an answer up to its last address is parsed; the rest is copied. This file must
never look at records.
"""

import struct
from collections.abc import Mapping
from typing import Final

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
DESCRIBE_CLUSTER: Final = 60

_METADATA_FLEXIBLE_FROM: Final = 9
_FIND_COORDINATOR_FLEXIBLE_FROM: Final = 3
_FIND_COORDINATOR_BATCHED_FROM: Final = 4

Address = tuple[str, int]


class UnreadableAnswer(Exception):
    """An answer does not have the layout of its version."""


def has_addresses(api_key: int) -> bool:
    return api_key in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER)


def addresses_in(api_key: int, version: int, frame: bytes) -> list[Address]:
    """The addresses in an answer, given without its four bytes of size."""
    return [address for _, _, address in _find(api_key, version, frame)]


def replace_addresses(api_key: int, version: int, frame: bytes, replacements: Mapping[Address, Address]) -> bytes:
    """The same answer, with every address replaced that has a replacement."""
    parts: list[bytes] = []
    copied = 0
    flexible = _is_flexible(api_key, version)
    for begin, end, address in _find(api_key, version, frame):
        replacement = replacements.get(address)
        if replacement is not None:
            host, port = replacement
            encoded = host.encode()
            size = _unsigned_varint(len(encoded) + 1) if flexible else struct.pack(">h", len(encoded))
            parts += [frame[copied:begin], size, encoded, struct.pack(">i", port)]
            copied = end
    parts.append(frame[copied:])
    return b"".join(parts)


def _is_flexible(api_key: int, version: int) -> bool:
    if api_key == METADATA:
        return version >= _METADATA_FLEXIBLE_FROM
    if api_key == FIND_COORDINATOR:
        return version >= _FIND_COORDINATOR_FLEXIBLE_FROM
    return True


# Where an address begins and ends in the frame, and what it is.
_Place = tuple[int, int, Address]


def _find(api_key: int, version: int, frame: bytes) -> list[_Place]:
    cursor = _Cursor(frame, _is_flexible(api_key, version))
    try:
        cursor.skip(4)  # correlation id
        cursor.skip_tagged_fields()
        if api_key == METADATA:
            return _find_in_metadata(cursor, version)
        if api_key == FIND_COORDINATOR:
            return _find_in_find_coordinator(cursor, version)
        return _find_in_describe_cluster(cursor, version)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UnreadableAnswer(f"API {api_key} version {version}: {error}") from error


def _find_in_metadata(cursor: "_Cursor", version: int) -> list[_Place]:
    if version >= 3:
        cursor.skip(4)  # throttle time
    places: list[_Place] = []
    for _ in range(cursor.array_length()):
        cursor.skip(4)  # node id
        places.append(cursor.address())
        if version >= 1:
            cursor.string()  # rack
        cursor.skip_tagged_fields()
    return places


def _find_in_find_coordinator(cursor: "_Cursor", version: int) -> list[_Place]:
    if version >= 1:
        cursor.skip(4)  # throttle time
    if version < _FIND_COORDINATOR_BATCHED_FROM:
        cursor.skip(2)  # error code
        if version >= 1:
            cursor.string()  # error message
        cursor.skip(4)  # node id
        return [cursor.address()]
    places: list[_Place] = []
    for _ in range(cursor.array_length()):
        cursor.string()  # key
        cursor.skip(4)  # node id
        places.append(cursor.address())
        cursor.skip(2)  # error code
        cursor.string()  # error message
        cursor.skip_tagged_fields()
    return places


def _find_in_describe_cluster(cursor: "_Cursor", version: int) -> list[_Place]:
    cursor.skip(4 + 2)  # throttle time, error code
    cursor.string()  # error message
    if version >= 1:
        cursor.skip(1)  # kind of endpoint
    cursor.string()  # cluster id
    cursor.skip(4)  # controller
    places: list[_Place] = []
    for _ in range(cursor.array_length()):
        cursor.skip(4)  # node id
        places.append(cursor.address())
        cursor.string()  # rack
        if version >= 2:
            cursor.skip(1)  # fenced
        cursor.skip_tagged_fields()
    return places


class _Cursor:
    """Reads an answer from front to back."""

    def __init__(self, frame: bytes, flexible: bool) -> None:
        self._frame = frame
        self._flexible = flexible
        self._position = 0

    def skip(self, size: int) -> None:
        self._position += size
        if self._position > len(self._frame):
            raise IndexError("it ends too early")

    def int32(self) -> int:
        value: int = struct.unpack_from(">i", self._frame, self._position)[0]
        self._position += 4
        return value

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._frame[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def string(self) -> str:
        if self._flexible:
            size = self.unsigned_varint() - 1
        else:
            size = struct.unpack_from(">h", self._frame, self._position)[0]
            self._position += 2
        begin = self._position
        self.skip(max(size, 0))
        return self._frame[begin : self._position].decode()

    def array_length(self) -> int:
        return self.unsigned_varint() - 1 if self._flexible else self.int32()

    def address(self) -> _Place:
        begin = self._position
        host = self.string()
        port = self.int32()
        return begin, self._position, (host, port)

    def skip_tagged_fields(self) -> None:
        if self._flexible:
            for _ in range(self.unsigned_varint()):
                self.unsigned_varint()
                self.skip(self.unsigned_varint())


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
