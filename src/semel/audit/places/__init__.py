"""Where rows are: topics, files, tables. One module for each kind; what they have in common is here.

A place is looked at once, when its pieces are made: its files, its offsets or its version are fixed then, and every
reading of a piece gives the same rows, unless somebody changes the data itself. A place must never write.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from semel.audit.rows import Rows, Wanted

# The rows that are held, and hashed, at a time.
BATCH_ROWS: Final = 65_536
# The rows of a piece, about: a second or so of work, so that nobody waits long for the last one.
PIECE_ROWS: Final = 1_048_576


class Piece(Protocol):
    """A part of a place, which another process may read; so it can be pickled, and holds nothing open."""

    @property
    def rows(self) -> int:
        """About how many; 0 where nobody knows."""

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        """Its rows, a few at a time; ids may be null."""


class Place(Protocol):
    """Something that holds rows with ids, and what to read of each."""

    @property
    def name(self) -> str:
        """What a person calls it; without a password."""

    @property
    def wanted(self) -> Wanted: ...

    def pieces(self) -> Sequence[Piece]:
        """The rows that the place has now, divided into pieces."""
