"""The table with the offset of each key's last record: compaction fills it from the new records, and looks up every
record.

Its memory is limited: each key counts as a fixed number of bytes, because the table has the digest of a long key. When
the table is full, the pass stops filling it, and remembers up to which offset it is complete.
"""

from array import array
from bisect import bisect_left
from hashlib import blake2b
from typing import Final

# A key of at most this many bytes, such as a number, a name or a UUID, is in the table itself, which is faster than a
# digest. A digest is longer than these, so the two cannot be confused.
PLAIN_KEY_BYTES_MAX: Final = 40
_DIGEST_BYTES: Final = PLAIN_KEY_BYTES_MAX + 1
# The memory of a digest, an offset, and their place in a table that is being doubled, as measured with CPython.
BYTES_PER_KEY: Final = 210
# How many batches that could not be opened are remembered; with more, every batch is opened again.
_LEFT_OUT_MAX: Final = 10_000


def digest(key: bytes) -> bytes:
    """The form in which the table has a key of more than `PLAIN_KEY_BYTES_MAX` bytes. The loops over records call this
    for no other, because a call for each record would take a tenth of their time.
    """
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastOffsets:
    """The offset of the last record before `until` for every noted key.

    All batches from `noted_from` to `until` were noted, except those of `leave_out`. So the table can say whether such
    a batch has the last record of any key; if keys are written often, most batches have none.
    """

    __slots__ = ("_is_sorted", "_left_out", "_sorted", "keys_max", "noted_from", "offsets", "until")

    def __init__(self, bytes_max: int, until: int) -> None:
        self.keys_max = max(bytes_max // BYTES_PER_KEY, 1)
        # By key, or by its `digest`; the loops over records read it directly.
        self.offsets: dict[bytes, int] = {}
        self.noted_from = 0
        self.until = until
        # The base offsets of batches that were not noted, or not completely.
        self._left_out: set[int] = set()
        # All offsets in the table, sorted, once it is complete.
        self._sorted = array("q")
        self._is_sorted = False

    def has_space(self, record_count: int) -> bool:
        """Whether a batch of `record_count` records certainly fits, whatever its keys are."""
        return len(self.offsets) + record_count <= self.keys_max

    def leave_out(self, base_offset: int) -> None:
        """Remember that not all keys of the batch at this offset could be noted."""
        if len(self._left_out) < _LEFT_OUT_MAX:
            self._left_out.add(base_offset)
        else:
            self.noted_from = self.until

    def has_none_of(self, base_offset: int, next_offset: int) -> bool:
        """Whether the batch with these offsets certainly has no key's last record. After the first call, nothing may be
        noted.
        """
        if base_offset < self.noted_from or next_offset > self.until or base_offset in self._left_out:
            return False
        if not self._is_sorted:
            self._sorted = array("q", sorted(self.offsets.values()))
            self._is_sorted = True
        place = bisect_left(self._sorted, base_offset)
        return place == len(self._sorted) or self._sorted[place] >= next_offset
