"""Where rows are: topics, files, tables. Each kind has its module; this one defines their interface.

The files, offsets or version of a place are fixed once, when its pieces are made: every reading of a piece gives the
same rows, unless somebody changes the data itself. A place must never write.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from semel.audit.rows import Rows, Wanted

# How many rows are held, and hashed, at a time; fewer if they have about so many bytes.
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 64 * 1024 * 1024
# About the number of rows of a piece: a second or so of work, so that nobody waits long for the last piece.
PIECE_ROWS: Final = 1_048_576


class Piece(Protocol):
    """A part of a place. Another process may read it, so it can be pickled, and holds nothing open."""

    @property
    def rows(self) -> int:
        """About how many; 0 if unknown."""

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        """Its rows, a few at a time; ids may be null."""


class Place(Protocol):
    """Something that holds rows with ids, and which parts of a row to read."""

    @property
    def name(self) -> str:
        """Its name for a person, without a password."""

    @property
    def wanted(self) -> Wanted: ...

    def pieces(self) -> Sequence[Piece]:
        """The rows that the place has now, divided into pieces."""
