"""How far a loop has come in each partition, committed databases counting alone: the offsets that may be committed.

It knows no client. Offsets go to the broker after the database, and late rather than often: what is delivered again
because of that is a duplicate.
"""

from collections.abc import Iterable
from typing import Final

from semel.inbox.messages import Message

# Records whose offsets may wait for the next commit while records keep coming.
UNCOMMITTED_MAX: Final = 100

Place = tuple[str, int]


class Progress:
    def __init__(self) -> None:
        self._next: dict[Place, int] = {}
        self._count = 0

    @property
    def is_due(self) -> bool:
        return self._count >= UNCOMMITTED_MAX

    def note(self, message: Message) -> None:
        """The database has committed what this message led to."""
        self._next[message.place] = message.offset + 1
        self._count += 1

    def offsets(self) -> dict[Place, int]:
        """The offset after the last one that is done, for each partition with something to commit."""
        return dict(self._next)

    def forget(self, places: Iterable[Place]) -> None:
        """They were committed, or are somebody else's now."""
        for place in places:
            self._next.pop(place, None)
        if not self._next:
            self._count = 0
