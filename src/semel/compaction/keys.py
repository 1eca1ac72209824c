"""Where the last record of each key is: the table that compaction fills from what is new, and asks for every record.

It is bounded: a key counts with a fixed number of bytes whatever its length, because a long one is known by its digest.
When the table is full, the pass that fills it stops and says up to which offset the table is complete.
"""

from hashlib import blake2b
from typing import Final

# A key of at most this many bytes stands for itself, which is quicker than to digest it; the usual keys are numbers,
# names and UUIDs. A digest is longer than all of those, so that the two cannot be mixed up.
PLAIN_KEY_BYTES_MAX: Final = 40
_DIGEST_BYTES: Final = PLAIN_KEY_BYTES_MAX + 1
# A digest and an offset as objects, and their place in a table while that is being doubled, as measured with CPython.
BYTES_PER_KEY: Final = 210


def digest(key: bytes | memoryview) -> bytes:
    """What a key is known by."""
    return bytes(key) if len(key) <= PLAIN_KEY_BYTES_MAX else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastOffsets:
    """For every key that was noted, the offset of its last record before `until`."""

    __slots__ = ("keys_max", "offsets", "until")

    def __init__(self, bytes_max: int, until: int) -> None:
        self.keys_max = max(bytes_max // BYTES_PER_KEY, 1)
        # By digest; the loops over records look into it directly.
        self.offsets: dict[bytes, int] = {}
        self.until = until

    def has_space(self, record_count: int) -> bool:
        """Whether a batch of `record_count` records is sure to fit, whatever its keys are."""
        return len(self.offsets) + record_count <= self.keys_max
