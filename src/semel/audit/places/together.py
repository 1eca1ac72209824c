"""Several places that count as one, such as a table and its quarantine: each row belongs into one of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from semel.audit.errors import AuditFailed
from semel.audit.places import Piece, Place
from semel.audit.rows import Rows, Wanted


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of one of the places, whose columns have that place's names."""

    piece: Piece
    own: Wanted

    @property
    def rows(self) -> int:
        return self.piece.rows

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        time = None if wanted.time is None else self.own.time
        amount = None if wanted.amount is None else self.own.amount
        return self.piece.read(Wanted(self.own.id, time, amount))


class Together:
    """It has a time or an amount if all its places have one."""

    def __init__(self, places: Sequence[Place]) -> None:
        first, *others = places
        for place in others:
            if (place.wanted.amount is None) != (first.wanted.amount is None):
                raise AuditFailed(
                    f"amounts are compared in all places or in none: {first.name} and {place.name} differ"
                )
        self._places = places
        self.name = " or ".join(place.name for place in places)
        have_times = all(place.wanted.time is not None for place in places)
        self.wanted = Wanted(first.wanted.id, first.wanted.time if have_times else None, first.wanted.amount)

    def pieces(self) -> Sequence[Piece]:
        return [_Part(piece, place.wanted) for place in self._places for piece in place.pieces()]
