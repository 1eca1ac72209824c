"""Where the last record of each key is: the table that compaction fills from what is new, and asks for every record.

It is bounded: a key counts with a fixed number of bytes whatever its length, because a long one is known by its digest.
When the table is full, the pass that fills it stops and says up to which offset the table is complete.
"""

from array import array
from bisect import bisect_left
from hashlib import blake2b
from typing import Final

# A key of at most this many bytes stands for itself, which is quicker than to digest it; the usual keys are numbers,
# names and UUIDs. A digest is longer than all of those, so that the two cannot be mixed up.
PLAIN_KEY_BYTES_MAX: Final = 40
_DIGEST_BYTES: Final = PLAIN_KEY_BYTES_MAX + 1
# A digest and an offset as objects, and their place in a table while that is being doubled, as measured with CPython.
BYTES_PER_KEY: Final = 210
# Batches that could not be opened are remembered up to this number; beyond it every batch is opened again.
_LEFT_OUT_MAX: Final = 10_000


def digest(key: bytes | memoryview) -> bytes:
    """What a key is known by."""
    return bytes(key) if len(key) <= PLAIN_KEY_BYTES_MAX else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastOffsets:
    """For every key that was noted, the offset of its last record before `until`.

    From `noted_from` on all batches before `until` were noted, except those that `leave_out` names. So the table says
    of such a batch whether it has the last record of any key, and where keys come round often most batches have not.
    """

    __slots__ = ("_is_sorted", "_left_out", "_sorted", "keys_max", "noted_from", "offsets", "until")

    def __init__(self, bytes_max: int, until: int) -> None:
        self.keys_max = max(bytes_max // BYTES_PER_KEY, 1)
        # By digest; the loops over records look into it directly.
        self.offsets: dict[bytes, int] = {}
        self.noted_from = 0
        self.until = until
        # The base offsets of batches that were not noted, or not to their end.
        self._left_out: set[int] = set()
        # All offsets in the table, in order, once it is complete.
        self._sorted = array("q")
        self._is_sorted = False

    def has_space(self, record_count: int) -> bool:
        """Whether a batch of `record_count` records is sure to fit, whatever its keys are."""
        return len(self.offsets) + record_count <= self.keys_max

    def leave_out(self, base_offset: int) -> None:
        """Not all keys of the batch at this offset could be noted."""
        self._left_out.add(base_offset)
        if len(self._left_out) > _LEFT_OUT_MAX:
            self.noted_from = self.until

    def has_none_of(self, base_offset: int, next_offset: int) -> bool:
        """Whether the batch with these offsets surely has the last record of no key. Nothing is noted any more."""
        if base_offset < self.noted_from or next_offset > self.until or base_offset in self._left_out:
            return False
        if not self._is_sorted:
            self._sorted = array("q", sorted(self.offsets.values()))
            self._is_sorted = True
        place = bisect_left(self._sorted, base_offset)
        return place == len(self._sorted) or self._sorted[place] >= next_offset
