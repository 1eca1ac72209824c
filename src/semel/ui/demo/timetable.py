"""Which faults strike the stream of payments, and when: chosen by a seed, the same for every semantic.

The time outside the hang is divided into slots of the same length, each with its faults at random moments. So every
seed has enough faults of each kind, and none strikes during the hang. This file must never wait: it only says when.
"""

import random
from dataclasses import dataclass
from typing import Final

from semel.chaos.plan import Fault

HANG_SECONDS: Final = 1.8
# The hang, and the time that a client needs to go on after it.
QUIET_SECONDS: Final = 2.2
# The approximate length of a slot; in each, an ACK is lost and a connection is cut.
SLOT_SECONDS: Final = 0.9
SLOTS_MIN: Final = 4
# A shorter stream has no time for all its faults.
SECONDS_MIN: Final = 4.0
# Where in a slot an ACK may be lost, and how much later a connection is cut, in slots.
_FROM, _TO = 0.1, 0.45
_CUT_LATER: Final = 0.45


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault, and how long after the first payment it strikes."""

    at_seconds: float
    fault: Fault


def timetable(seed: int, seconds: float) -> list[Strike]:
    """The faults of a stream of this length, in their order."""
    chance = random.Random(f"{seed}/timetable")
    slots = max(SLOTS_MIN, round((seconds - QUIET_SECONDS) / SLOT_SECONDS))
    length = (seconds - QUIET_SECONDS) / slots
    hang_before = chance.randint(slots // 3, slots - slots // 3)
    strikes = []
    for slot in range(slots):
        begin = slot * length
        if slot == hang_before:
            strikes.append(Strike(begin, Fault.HANG))
        if slot >= hang_before:
            begin += QUIET_SECONDS
        strikes.append(Strike(begin + length * chance.uniform(_FROM, _TO), Fault.DROP_ACK))
        strikes.append(Strike(begin + length * (_CUT_LATER + chance.uniform(_FROM, _TO)), Fault.CUT))
    return strikes
