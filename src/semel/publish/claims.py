"""The rules: what a number is to a cursor. No IO, no clock; time and brokers are somebody else's.

The cursor is the last number that was published, or `NOTHING`. A number at or below it is a duplicate, the next one is
accepted, and one further on is a gap, or accepted too where numbers come from outside and only rise. A call with
several numbers is judged as if each was published by itself, but for one thing: with a gap in it, nothing of it counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from semel.publish.errors import Gap, PublishRefused

NOTHING: Final = -1
# What the largest number may be: it has to fit into the integers of databases and other languages.
NUMBER_MAX: Final = 2**63 - 1


class Outcome(StrEnum):
    """What came of a number."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Plan:
    """What will come of a call, and where the cursor stands after it."""

    outcomes: tuple[Outcome, ...]
    cursor: int


def decide(name: str, cursor: int, number: int, *, gaps_allowed: bool) -> Outcome:
    """Accepted, a duplicate, or `Gap`."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= NUMBER_MAX:
        raise PublishRefused(f"{number!r} is no number to publish under: they are integers, and begin with 0")
    if number <= cursor:
        return Outcome.DUPLICATE
    if number > cursor + 1 and not gaps_allowed:
        raise Gap(name, expected=cursor + 1, got=number)
    return Outcome.ACCEPTED


def plan(name: str, cursor: int, numbers: Iterable[int], *, gaps_allowed: bool) -> Plan:
    """What each number of a call is, one after the other."""
    outcomes = []
    for number in numbers:
        outcomes.append(decide(name, cursor, number, gaps_allowed=gaps_allowed))
        cursor = max(cursor, number)
    return Plan(tuple(outcomes), cursor)
