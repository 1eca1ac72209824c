"""What one bucket knows about its producers: for each the state that `wire.sequences` keeps, and when its last row
came. This file must not look into a state: only core knows its layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy

from semel.spark.dedup.key_table import HIGH, LOW, Array, Integers, empty, find, keyed, merge
from semel.spark.dedup.silence import last_heard

_HEARD: Final = "heard_ms"
_STATE: Final = "state"
_STATE_BYTES: Final = 34
_LAYOUT: Final = keyed(**{_HEARD: "<i8", _STATE: f"V{_STATE_BYTES}"})


@dataclass(frozen=True)
class ProducerStates:
    table: Array
    has_forgotten: bool
    """Whether a producer was ever forgotten here. If so, an unknown producer may be a forgotten one."""

    @classmethod
    def unpack(cls, kept: bytes | None) -> "ProducerStates":
        if kept is None:
            return cls(empty(_LAYOUT), False)
        return cls(numpy.frombuffer(kept, _LAYOUT, offset=1), bool(kept[0]))

    def pack(self) -> bytes:
        return bytes([self.has_forgotten]) + self.table.tobytes()

    def without_silent(self, now_ms: int, forget_ms: int) -> "ProducerStates":
        """Without the producers that were silent for this time; time in which the query did not run does not count."""
        at_ms, is_remembered = last_heard(self.table[_HEARD], now_ms, forget_ms)
        table = self.table.copy()
        table[_HEARD] = at_ms
        return ProducerStates(table[is_remembered], self.has_forgotten or not is_remembered.all())

    def of(self, high: Integers, low: Integers) -> list[bytes | None]:
        """The state of each of these producers; None for an unknown one."""
        known, places = find(self.table, high, low)
        states: list[bytes | None] = [None] * len(high)
        wanted = numpy.flatnonzero(known)
        for number, state in zip(wanted.tolist(), self.table[_STATE][places[wanted]].tolist(), strict=True):
            states[number] = state
        return states

    def noted(self, high: Integers, low: Integers, states: Sequence[bytes | None], now_ms: int) -> "ProducerStates":
        """With the new states of these producers, whose last rows came now. A producer without a state stays
        unknown."""
        known, places = find(self.table, high, low)
        present = numpy.array([state is not None for state in states], bool)
        packed = numpy.frombuffer(b"".join(state or bytes(_STATE_BYTES) for state in states), f"V{_STATE_BYTES}")
        table = self.table.copy()
        table[_STATE][places[known]] = packed[known]
        table[_HEARD][places[known]] = now_ms
        is_added = present & ~known
        added = numpy.zeros(int(is_added.sum()), _LAYOUT)
        added[HIGH], added[LOW], added[_HEARD], added[_STATE] = high[is_added], low[is_added], now_ms, packed[is_added]
        return replace(self, table=merge(table, added))
