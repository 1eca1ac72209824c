"""Which topics a member of a classic consumer group asks for: the one thing in its metadata that the broker looks into.

The metadata belong to the clients and come in versions of theirs; all of them begin like the first one, with a version
and the names of the topics. This file must never trust a length that it has read, and never fail: bytes that are no
subscription are one that nobody knows.
"""

import struct
from typing import Final

_VERSION: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that the metadata of a member with protocol type `consumer` name; None if they cannot be read."""
    topics = set()
    at = _VERSION.size + _COUNT.size
    try:
        (version,) = _VERSION.unpack_from(metadata)
        (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
        # A name takes two bytes at least, so a count of more than that ends the loop early.
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size + length
            if length < 0 or at > len(metadata):
                return None
            topics.add(metadata[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if version >= 0 and count >= 0 else None
