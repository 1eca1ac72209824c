"""Which fault strikes when: by chance (from a seed), because a caller armed it, or because it was planned.

Every connection has its own random numbers, made from the seed and the connection's number, so that the faults of one
connection do not depend on how busy the others are. This file must never touch a socket.
"""

import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What can happen to a message on its way."""

    # The answer to a Produce is dropped, though the broker has stored the batch; then both sides are reset.
    DROP_ACK = "drop_ack"
    # An answer, and with it all answers after it, comes late.
    DELAY = "delay"
    # An answer stops in the middle of its frame; then both sides are closed.
    TRUNCATE = "truncate"
    # Only a part of a request arrives, from nothing to all of it; then both sides are closed.
    CUT = "cut"
    # Both sides are reset, and a request is not forwarded.
    RESET = "reset"
    # A message arrives one byte at a time.
    DRIBBLE = "dribble"
    # After a request, nothing passes on any connection for some time; then everything is forwarded.
    HANG = "hang"


ON_REQUESTS: Final = (Fault.CUT, Fault.RESET, Fault.DRIBBLE, Fault.HANG)
ON_ANSWERS: Final = (Fault.DELAY, Fault.TRUNCATE, Fault.DRIBBLE)
# The faults of any answer can strike the acknowledgement of a Produce, too, and only this answer is dropped.
ON_ACKS: Final = (Fault.DROP_ACK, *ON_ANSWERS)

DELAY_MS_MAX: Final = 300
HANG_MS: Final = 1_800


@dataclass(frozen=True)
class PlannedFault:
    """A fault and its moment, from which on it strikes the next `times` messages that it can strike."""

    fault: Fault
    times: int = 1
    # The API whose requests are counted and struck; None for all APIs.
    api_key: int | None = None
    # The moment: a number of requests over all connections, or a time since the proxy started.
    at_request: int | None = None
    after_seconds: float | None = None


@dataclass
class _Armed:
    fault: Fault
    api_key: int | None
    times: int


class FaultPlan:
    """The likelihood of each fault for each message that it can strike, and the armed and planned faults.

    Any thread may arm faults; only the proxy's thread calls `draw`.
    """

    def __init__(
        self,
        odds: Mapping[Fault, float] | None = None,
        *,
        seed: int = 0,
        delay_ms_max: int = DELAY_MS_MAX,
        hang_ms: int = HANG_MS,
        planned: Sequence[PlannedFault] = (),
    ) -> None:
        """Without `odds`, nothing happens by chance."""
        self.odds = dict(odds or {})
        if any(not 0 <= likelihood <= 1 for likelihood in self.odds.values()):
            raise ValueError(f"odds are between 0 and 1, and these are not: {self.odds}")
        self.seed = seed
        self.delay_ms_max = delay_ms_max
        self.hang_ms = hang_ms
        # The proxy, which has a clock, arms these at their time.
        self.timed = tuple(one for one in planned if one.after_seconds is not None)
        self._counted = tuple(one for one in planned if one.at_request is not None)
        self._requests: Counter[int | None] = Counter()
        self.fired: Counter[Fault] = Counter()
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()

    def arm(self, fault: Fault, times: int = 1, api_key: int | None = None) -> None:
        """Let the fault strike the next `times` messages that it can strike, of one API or of any."""
        with self._lock:
            self._armed.append(_Armed(fault, api_key, times))

    @property
    def requests(self) -> int:
        """How many requests have come."""
        return self._requests[None]

    def count_request(self, api_key: int | None) -> None:
        """Count a request, and arm the faults that were planned for it."""
        with self._lock:
            # Once for its API, and once for all APIs.
            for counted in {api_key, None}:
                self._requests[counted] += 1
                for planned in self._counted:
                    if planned.api_key == counted and planned.at_request == self._requests[counted]:
                        self._armed.append(_Armed(planned.fault, planned.api_key, planned.times))

    def calm(self) -> None:
        """Stop all faults, those by chance and the armed ones."""
        with self._lock:
            self._armed.clear()
            self.odds = {}

    def chance(self, connection: int) -> random.Random:
        """The random numbers of one connection."""
        return random.Random(f"{self.seed}/{connection}")

    def draw(self, chance: random.Random, possible: tuple[Fault, ...], api_key: int | None = None) -> Fault | None:
        """The fault that strikes this message, if one does; it is counted as fired."""
        # Each possible fault takes a random number, so that the following numbers do not depend on the armed faults.
        struck = [chance.random() < self.odds.get(fault, 0.0) for fault in possible]
        with self._lock:
            for fault, by_chance in zip(possible, struck, strict=True):
                if self._take_armed(fault, api_key) or by_chance:
                    self.fired[fault] += 1
                    return fault
        return None

    def _take_armed(self, fault: Fault, api_key: int | None) -> bool:
        """Whether the fault was armed for such a message; if so, one of its times is used up."""
        for armed in self._armed:
            if armed.fault is fault and armed.api_key in (None, api_key):
                armed.times -= 1
                if armed.times == 0:
                    self._armed.remove(armed)
                return True
        return False
