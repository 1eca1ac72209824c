"""What became of an event, and how many of each there were. An outcome is true if, and only if, the effect is due."""

from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What became of an event; true if, and only if, its effect is due."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """The version is not the one after the last: something is missing in between."""
    QUARANTINED = "quarantined"
    """Nobody can say any more whether it is new, or it cannot be handled: a person decides."""

    def __bool__(self) -> bool:
        return self is Outcome.ACCEPTED


class Counts(NamedTuple):
    """The records that a loop is done with; exchanged as a whole, so that whoever reads it sees figures that agree."""

    first_time: int = 0
    duplicate: int = 0
    quarantined: int = 0
    retried: int = 0
    """Of those quarantined before, how many have left the quarantine since; they are not consumed a second time."""

    @property
    def consumed(self) -> int:
        return self.first_time + self.duplicate + self.quarantined

    def with_one(self, outcome: Outcome) -> "Counts":
        match outcome:
            case Outcome.ACCEPTED:
                return self._replace(first_time=self.first_time + 1)
            case Outcome.DUPLICATE:
                return self._replace(duplicate=self.duplicate + 1)
            case Outcome.GAP | Outcome.QUARANTINED:
                return self._replace(quarantined=self.quarantined + 1)
