"""The topics in the subscription of a classic consumer: normally all that the broker reads of a member's metadata.

The format belongs to the clients. All its versions begin like the first, with the version and the names of the topics.
This file must never trust a length that it has read, and must never fail: the result for bytes that are not a
subscription is None.
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
        # A name takes at least two bytes, so the loop ends at the end of the bytes even if the count is too high.
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size + length
            if length < 0 or at > len(metadata):
                return None
            topics.add(metadata[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if version >= 0 and count >= 0 else None
