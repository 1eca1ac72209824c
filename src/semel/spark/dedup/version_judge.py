"""Judges rows by the version of their aggregate, if versions grow but may have gaps: a version newer than the last one
is accepted. It keeps the last version of each aggregate.
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
from semel.spark.dedup.silence import last_heard

VERSION: Final = f"{CLAIM_PREFIX}version"
"""The version; null if a row makes no claim."""

_LAST: Final = "last"
_HEARD: Final = "heard_ms"
_LAYOUT: Final = keyed(**{_LAST: "<i8", _HEARD: "<i8"})
_BEFORE_ALL: Final = -(2**63)


@dataclass(frozen=True)
class VersionJudge:
    pinned: Mapping[str, object]
    forget_ms: int

    def judge(self, state: State | None, rows: pa.Table | None, moment: Moment) -> Verdict:
        known = numpy.frombuffer(state.kept, _LAYOUT).copy() if state else empty(_LAYOUT)
        if rows is None:
            return Verdict(None, State(known.tobytes()))
        known[_HEARD], is_remembered = last_heard(known[_HEARD], moment.now_ms, self.forget_ms)
        known = known[is_remembered]
        claiming = numpy.flatnonzero(rows[VERSION].is_valid().to_numpy())
        version = integers(rows, VERSION)[claiming]
        high, low = integers(rows, KEY_HIGH)[claiming], integers(rows, KEY_LOW)[claiming]
        _, aggregate, firsts = group(high, low)
        high, low = high[firsts], low[firsts]
        is_known, places = find(known, high, low)
        last = numpy.full(len(firsts), _BEFORE_ALL)
        last[is_known] = known[_LAST][places[is_known]]

        order = numpy.lexsort((version, aggregate))
        version, aggregate = version[order], aggregate[order]
        is_copy = numpy.zeros(len(order), bool)
        is_copy[1:] = (version[1:] == version[:-1]) & (aggregate[1:] == aggregate[:-1])
        before = last[aggregate]
        is_new = (version > before) | ~is_known[aggregate]
        fate = numpy.where(is_new & ~is_copy, ACCEPTED, DUPLICATE)
        fate[~is_new & (version < before)] = LATE
        numpy.maximum.at(last, aggregate, version)

        unclaimed = numpy.setdiff1d(numpy.arange(rows.num_rows), claiming)
        outcome = numpy.concatenate([fate, numpy.full(len(unclaimed), UNCLAIMED)])
        rows = rows.take(numpy.concatenate([claiming[order], unclaimed]))
        nothing = numpy.full(len(outcome), NOTHING_EXPECTED)

        kept = known.copy()
        kept[_LAST][places[is_known]], kept[_HEARD][places[is_known]] = last[is_known], moment.now_ms
        is_added = ~is_known
        added = numpy.zeros(int(is_added.sum()), _LAYOUT)
        added[HIGH], added[LOW], added[_LAST], added[_HEARD] = (
            high[is_added],
            low[is_added],
            last[is_added],
            moment.now_ms,
        )
        return Verdict(with_outcomes(rows, outcome, nothing), State(merge(kept, added).tobytes()))
