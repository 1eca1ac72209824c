"""What strikes a soak, where, and when: drawn from a seed, for as long as it lasts.

Each kind of fault has slots of its own, and strikes once in each, at a moment of its own. The broker and the driver are
killed in the first part alone, so that the lives after it are long enough for their memory to be judged; everything
else goes on to the end. This file must never wait or strike: it only says when.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What is done."""

    DROP_ACK = "ACKs lost"
    CUT = "connections cut"
    HANG = "hangs of the network"
    TASK = "Python workers killed in a task"
    BROKER = "broker killed"
    DRIVER = "driver killed"


class Where(StrEnum):
    """To whom."""

    PRODUCER = "producer"
    PIPELINE = "pipeline"
    ENRICHING = "enriching"
    TABLES = "tables"
    ITSELF = ""


NETWORK: Final = (Where.PRODUCER, Where.PIPELINE)
QUERIES: Final = (Where.ENRICHING, Where.TABLES)
PLACES: Final = {
    Kind.DROP_ACK: NETWORK,
    Kind.CUT: NETWORK,
    Kind.HANG: NETWORK,
    Kind.TASK: QUERIES,
    Kind.BROKER: (Where.ITSELF,),
    Kind.DRIVER: (Where.ITSELF,),
}
# How long the slots of each kind are, and up to which share of the soak there are any.
SLOT_SECONDS: Final = {
    Kind.DROP_ACK: 4.0,
    Kind.CUT: 6.0,
    Kind.HANG: 30.0,
    Kind.TASK: 20.0,
    Kind.BROKER: 80.0,
    Kind.DRIVER: 120.0,
}
UNTIL: Final = {Kind.BROKER: 0.6, Kind.DRIVER: 0.4}
# Less has no room for a driver that dies and comes back; then it is left alive, and that is said.
WHOLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Strike:
    """A fault, and how long after the beginning it is let loose."""

    at_seconds: float
    kind: Kind
    where: Where


def plan(seed: int, seconds: float) -> list[Strike]:
    """In the order in which they strike; the same ones for the same seed and length."""
    return sorted(strike for kind in kinds(seconds) for strike in _strikes(seed, kind, seconds))


def kinds(seconds: float) -> list[Kind]:
    """Those that a soak of this length has, each of them at least once in each place."""
    return [kind for kind in Kind if kind is not Kind.DRIVER or seconds >= WHOLE_SECONDS]


def _strikes(seed: int, kind: Kind, seconds: float) -> Iterator[Strike]:
    chance = random.Random(f"{seed}/{kind}")
    places = PLACES[kind]
    span = seconds * UNTIL.get(kind, 1.0)
    slots = max(len(places), int(span / SLOT_SECONDS[kind]))
    first = chance.randrange(len(places))
    for slot in range(slots):
        at_seconds = span * (slot + chance.random()) / slots
        # In turn, so that none is spared.
        yield Strike(at_seconds, kind, places[(first + slot) % len(places)])
