"""What a reader does with a batch that it cannot read: it fails and says which, or passes over it and says which.

A broker checks the records of a batch only if they are not compressed, and older brokers and other ones may not check
them at all. One producer's batch must not end every reader of a partition for ever; and no reader may pass over
anything by itself.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from semel.wire.batch import BatchHeader
from semel.wire.errors import ProtocolError


class OnBadBatch(Enum):
    """What to do with a batch that cannot be read."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class BadBatch(NamedTuple):
    """A batch that cannot be read, and why."""

    header: BatchHeader
    why: str

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.next_offset - 1

    def __str__(self) -> str:
        return f"the batch at offsets {self.first} to {self.last} cannot be read: {self.why}"


class UnreadableBatch(ProtocolError):
    """The reader came to a batch that it cannot read, and was not told to pass over such batches."""

    def __init__(self, bad: BadBatch, advice: str = "") -> None:
        super().__init__(f"{bad}. {advice}" if advice else str(bad))


Report = Callable[[BadBatch], None]


def refuse(bad: BadBatch) -> None:
    """The report of a reader that fails."""
    raise UnreadableBatch(bad)
