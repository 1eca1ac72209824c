"""Which fault strikes when: by chance, from a seed, or because somebody asked for the next one.

Every connection has a stream of chance of its own, made from the seed and the connection's number, so that what strikes
one connection does not depend on how busy the others are. This file must never touch a socket.
"""

import random
import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What can happen to a message on its way."""

    # The answer to a Produce is swallowed, though the broker has committed the batch; then both sides are reset.
    DROP_ACK = "drop_ack"
    # An answer, and with it those behind it, comes late.
    DELAY = "delay"
    # An answer stops in the middle of its frame; then both sides are closed.
    TRUNCATE = "truncate"
    # A part of a request arrives, anything from nothing to all of it; then both sides are closed.
    CUT = "cut"
    # Both sides are reset in place of passing on a request.
    RESET = "reset"
    # A message arrives one byte at a time.
    DRIBBLE = "dribble"


ON_REQUESTS: Final = (Fault.CUT, Fault.RESET, Fault.DRIBBLE)
ON_ANSWERS: Final = (Fault.DELAY, Fault.TRUNCATE, Fault.DRIBBLE)
# The acknowledgement of a Produce suffers the same as any answer, and is what there is to drop.
ON_ACKS: Final = (Fault.DROP_ACK, *ON_ANSWERS)

DELAY_MS_MAX: Final = 300


class FaultPlan:
    """How likely each fault is for each message it can strike, and the faults that were asked for.

    Any thread may ask; the proxy's thread draws.
    """

    def __init__(
        self, odds: Mapping[Fault, float] | None = None, *, seed: int = 0, delay_ms_max: int = DELAY_MS_MAX
    ) -> None:
        """Without odds nothing happens by chance."""
        self.odds = dict(odds or {})
        if any(not 0 <= likelihood <= 1 for likelihood in self.odds.values()):
            raise ValueError(f"odds are between 0 and 1, and these are not: {self.odds}")
        self.seed = seed
        self.delay_ms_max = delay_ms_max
        self.fired: Counter[Fault] = Counter()
        self._armed: Counter[Fault] = Counter()
        self._lock = threading.Lock()

    def arm(self, fault: Fault, times: int = 1) -> None:
        """Let the fault strike the next so many messages that it can strike."""
        with self._lock:
            self._armed[fault] += times

    def calm(self) -> None:
        """No more faults, neither by chance nor asked for."""
        with self._lock:
            self._armed.clear()
            self.odds = {}

    def chance(self, connection: int) -> random.Random:
        """The stream of chance of one connection."""
        return random.Random(f"{self.seed}/{connection}")

    def draw(self, chance: random.Random, possible: tuple[Fault, ...]) -> Fault | None:
        """What strikes this message, if anything does; it is counted as fired."""
        # Chance is asked for every fault, so that its stream is the same whatever was armed.
        struck = [chance.random() < self.odds.get(fault, 0.0) for fault in possible]
        with self._lock:
            for fault, by_chance in zip(possible, struck, strict=True):
                if self._armed[fault] > 0:
                    self._armed[fault] -= 1
                elif not by_chance:
                    continue
                self.fired[fault] += 1
                return fault
        return None
