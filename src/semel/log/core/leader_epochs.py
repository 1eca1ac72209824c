"""The leader epochs in which the records of a partition were written, as consumers ask for them (KIP-320).

The broker is the only leader. Its epoch rises when it starts again and may have lost records that were acknowledged or
read (`--durability os`, and no clean stop). A consumer whose position lies beyond the end of the log asks where the
epoch of its last record ended, gets an offset below its position, and so learns that records it read are lost. Without
the epochs it would go on in the middle of other records.
"""

from collections.abc import Sequence
from typing import Final

# The epochs kept for a partition. If there are more, the oldest is merged with its successor: a consumer that asks
# about a merged epoch gets an end that is too early, never one that is too late.
EPOCHS_MAX: Final = 100


class LeaderEpochs:
    """The epochs in which records were written, each with its first offset. Records before the first are of epoch 0."""

    __slots__ = ("_begins", "last")

    def __init__(self, begins: Sequence[tuple[int, int]] = ()) -> None:
        self._begins = [(epoch, offset) for epoch, offset in begins] if begins else []
        # The epoch of the last record; 0 where there is none.
        self.last = self._begins[-1][0] if self._begins else 0

    def note(self, epoch: int, offset: int) -> None:
        """A batch of this epoch was appended at this offset."""
        if epoch > self.last:
            self._begins.append((epoch, offset))
            self.last = epoch
            if len(self._begins) > EPOCHS_MAX:
                self._begins[:2] = [(self._begins[1][0], self._begins[0][1])]

    def at(self, offset: int) -> int:
        """The epoch of the record at this offset."""
        return max((epoch for epoch, begin in self._begins if begin <= offset), default=0)

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The last epoch up to this one that has records, and its end offset."""
        last = max((last for last, _ in self._begins if last <= epoch), default=0)
        return last, next((offset for later, offset in self._begins if later > epoch), log_end)

    def snapshot(self) -> list[tuple[int, int]]:
        return list(self._begins)
