"""Judges rows by the id of their event. An id is kept only as long as a copy could come that is not late. A late row is
never taken for new: its id may have been forgotten, so nobody can know whether it came before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy
import pyarrow as pa

from semel.spark.dedup.judge import (
    CLAIM_PREFIX,
    KEY_HIGH,
    KEY_LOW,
    NOTHING_EXPECTED,
    Moment,
    State,
    Verdict,
    integers,
    with_outcomes,
)
from semel.spark.dedup.key_table import HIGH, LOW, empty, find, group, keyed, merge
from semel.spark.dedup.outcomes import ACCEPTED, DUPLICATE, LATE, UNCLAIMED

HAPPENED: Final = f"{CLAIM_PREFIX}happened_ms"
"""When the event happened, in milliseconds; null if a row makes no claim."""

_EXPIRES: Final = "expires_s"
_LAYOUT: Final = keyed(**{_EXPIRES: "<u4"})
"""Expiry is in seconds, rounded up: four bytes reach to the year 2106."""
_SECONDS_MAX: Final = 2**32 - 1


@dataclass(frozen=True)
class IdJudge:
    pinned: Mapping[str, object]
    within_ms: int

    def judge(self, state: State | None, rows: pa.Table | None, moment: Moment) -> Verdict:
        known = numpy.frombuffer(state.kept, _LAYOUT) if state else empty(_LAYOUT)
        if moment.watermark_ms is not None:
            known = known[known[_EXPIRES] >= moment.watermark_ms // 1000]
        if rows is None:
            return Verdict(None, State(known.tobytes()))
        happened_ms = integers(rows, HAPPENED)
        is_claim = rows[HAPPENED].is_valid().to_numpy()
        outcome = numpy.full(len(happened_ms), UNCLAIMED)
        is_late = is_claim & (happened_ms < _floor_ms(moment))
        high, low = integers(rows, KEY_HIGH), integers(rows, KEY_LOW)

        # Rows that are not late come first: of two copies, a late one must not stand for the other.
        claiming = numpy.flatnonzero(is_claim)
        claiming = claiming[numpy.argsort(is_late[claiming], kind="stable")]
        _, number_of, firsts = group(high[claiming], low[claiming])
        leaders = claiming[firsts]
        is_known, _ = find(known, high[leaders], low[leaders])
        outcome[claiming] = DUPLICATE
        outcome[leaders] = numpy.where(is_known, DUPLICATE, numpy.where(is_late[leaders], LATE, ACCEPTED))
        # If even the first row of an id is late, all of them are.
        outcome[claiming] = numpy.where(outcome[leaders][number_of] == LATE, LATE, outcome[claiming])

        new = leaders[outcome[leaders] == ACCEPTED]
        added = numpy.zeros(len(new), _LAYOUT)
        added[HIGH], added[LOW] = high[new], low[new]
        added[_EXPIRES] = numpy.clip(-(-(happened_ms[new] + self.within_ms) // 1000), 0, _SECONDS_MAX)
        nothing = numpy.full(len(outcome), NOTHING_EXPECTED)
        return Verdict(with_outcomes(rows, outcome, nothing), State(merge(known, added).tobytes()))


def _floor_ms(moment: Moment) -> int:
    return -(2**62) if moment.watermark_ms is None else moment.watermark_ms
