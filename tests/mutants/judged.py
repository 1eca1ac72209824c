"""Mutants that change nothing that anybody could see, or only how long something takes. None of them is planted."""

from typing import Final, NamedTuple


class Judged(NamedTuple):
    name: str
    place: str
    """As in `Bug`."""
    piece: str
    instead: str
    why: str
    """Why nobody can notice it."""


JUDGED: Final[tuple[Judged, ...]] = ()
