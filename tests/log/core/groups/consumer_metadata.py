"""The bytes that consumers of the classic protocol bring to JoinGroup, written as clients write them."""

import struct
from collections.abc import Iterable, Mapping


def metadata(
    topics: Iterable[str],
    owned: Mapping[str, Iterable[int]] | None = None,
    version: int = 3,
    rack_id: str | None = None,
) -> bytes:
    """A subscription in one of its versions; what the version does not have is left out."""
    names = [_text(name) for name in topics]
    parts = [struct.pack(">hi", version, len(names)), *names, struct.pack(">i", -1)]
    if version >= 1:
        parts.append(struct.pack(">i", len(owned or {})))
        for name, indexes in (owned or {}).items():
            numbers = list(indexes)
            parts.append(_text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    if version >= 2:
        parts.append(struct.pack(">i", 7))
    if version >= 3:
        parts.append(struct.pack(">h", -1) if rack_id is None else _text(rack_id))
    return b"".join(parts)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
