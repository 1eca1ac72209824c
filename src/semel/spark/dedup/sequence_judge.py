"""Judges rows by their producer, epoch and number, and decides what to do about a gap: wait for the missing rows,
report the gap and continue, or fail. `claims` and `wire.sequences` decide what is a gap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy
import pyarrow as pa

from semel.spark.dedup.claims import Claims, Judged, judge_claims
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
from semel.spark.dedup.key_table import Flags, Indices, Integers
from semel.spark.dedup.outcomes import DUPLICATE, FENCED, GAP, HELD, UNCLAIMED
from semel.spark.dedup.pieces import joined, packed, unpacked
from semel.spark.dedup.producer_states import ProducerStates
from semel.wire.sequences import SEQUENCE_MASK

EPOCH_MAX: Final = 32_767
HELD_SINCE: Final = f"{CLAIM_PREFIX}held_since"


class OnGap(StrEnum):
    HOLD = "hold"
    QUARANTINE = "quarantine"
    FAIL = "fail"


class GapFound(ValueError):
    """A number is missing, and the query has on_gap="fail"."""


@dataclass(frozen=True)
class SequenceJudge:
    pinned: Mapping[str, object]
    named: Sequence[str]
    """The columns that name a producer in messages."""
    epoch: str | None
    """The column of the epoch; None if there are no epochs."""
    sequence: str
    first: int | None
    """The number that a producer begins with; None if it may be any."""
    on_gap: OnGap
    hold_ms: int
    held_rows_max: int
    """For each producer. If more rows than this would wait, the last ones by epoch and number are not held."""
    forget_ms: int

    def judge(self, state: State | None, rows: pa.Table | None, moment: Moment) -> Verdict:
        producers = ProducerStates.unpack(state.kept if state else None)
        rows = _with_held(state.held if state else None, rows, moment.now_ms)
        if rows is None:
            return Verdict(None, State(producers.pack()))

        producers = producers.without_silent(moment.now_ms, self.forget_ms)
        claims, claiming, unclaimed = self._claims(rows)
        is_new = self.first is not None and not producers.has_forgotten
        judged = judge_claims(claims, producers, is_new=is_new, now_ms=moment.now_ms)
        rows = rows.take(numpy.concatenate([claiming[judged.order], unclaimed]))
        settled, expected = self._settled(rows, judged, moment)
        outcome = numpy.concatenate([settled, numpy.full(len(unclaimed), UNCLAIMED)])
        expected = numpy.concatenate([expected, numpy.full(len(unclaimed), NOTHING_EXPECTED)])

        is_held = outcome == HELD
        held = rows.filter(is_held) if is_held.any() else None
        output = rows.filter(~is_held) if held else rows
        return Verdict(
            with_outcomes(output, outcome[~is_held], expected[~is_held]) if output.num_rows else None,
            State(judged.producers.pack(), packed(held, compression="zstd") if held else None),
            int(integers(held, HELD_SINCE).min()) + self.hold_ms if held else None,
        )

    def _claims(self, rows: pa.Table) -> tuple[Claims, Indices, Indices]:
        """The claims, the rows that make them, and the rows that make none because a producer, an epoch or a number is
        missing or not valid."""
        epoch = numpy.zeros(rows.num_rows, numpy.int64) if self.epoch is None else integers(rows, self.epoch)
        number = integers(rows, self.sequence)
        is_claim = rows[KEY_HIGH].is_valid().to_numpy()
        is_claim = is_claim & (epoch >= 0) & (epoch <= EPOCH_MAX) & (number >= 0) & (number <= SEQUENCE_MASK)
        # Numbers count from the first number of a producer, so that each producer begins at 0.
        number = (number - (self.first or 0)) & SEQUENCE_MASK
        columns = (integers(rows, KEY_HIGH), integers(rows, KEY_LOW), epoch, number)
        claiming = numpy.flatnonzero(is_claim)
        if len(claiming) == rows.num_rows:
            return Claims(*columns), claiming, claiming[:0]
        return Claims(*(column[claiming] for column in columns)), claiming, numpy.flatnonzero(~is_claim)

    def _settled(self, rows: pa.Table, judged: Judged, moment: Moment) -> tuple[Integers, Integers]:
        """Outcomes and expected numbers, after `on_gap` was applied to the gaps."""
        is_gap = judged.outcome == GAP
        outcome = judged.outcome.copy()
        expected = numpy.where(is_gap, self._shown(judged.expected), judged.expected)
        if self.on_gap is OnGap.FAIL and is_gap.any():
            raise GapFound(self._sentence(rows, judged, int(numpy.flatnonzero(is_gap)[0])))
        if self.on_gap is OnGap.HOLD and is_gap.any() and not moment.is_last:
            # A later epoch of this producer was accepted in this batch, so the missing rows would come too late.
            is_overtaken = is_gap & (judged.epoch < judged.final_epoch)
            outcome[is_overtaken] = FENCED
            expected[is_overtaken] = judged.final_epoch[is_overtaken]
            waited_ms = moment.now_ms - integers(rows, HELD_SINCE)[: len(outcome)]
            is_held = (outcome == GAP) & ~judged.is_copy & (waited_ms < self.hold_ms)
            is_held &= _ranks(judged.producer, is_held) < self.held_rows_max
            outcome[is_held] = HELD
            # Whatever the outcome of a held row will be, its copy makes the same claim a second time.
            is_second = is_held[judged.original] & judged.is_copy
            outcome[is_second] = DUPLICATE
            expected[is_second] = NOTHING_EXPECTED
        return outcome, expected

    def _sentence(self, rows: pa.Table, judged: Judged, at: int) -> str:
        who = ", ".join(f"{name}={rows[name][at].as_py()}" for name in self.named)
        expected, got = self._shown(judged.expected)[at], self._shown(judged.number)[at]
        return f"gap: {who}, epoch {judged.epoch[at]}: expected {expected}, got {got}"

    def _shown(self, number: Integers) -> Integers:
        """The number as the producer counts it."""
        return (number + (self.first or 0)) & SEQUENCE_MASK


def _with_held(held: bytes | None, rows: pa.Table | None, now_ms: int) -> pa.Table | None:
    """The held rows, then the new ones: so of two copies, the held row comes first and is not the duplicate."""
    waiting = [] if held is None else [unpacked(held)]
    if rows is not None:
        since = pa.array(numpy.full(rows.num_rows, now_ms, numpy.int64))
        waiting.append(rows.append_column(HELD_SINCE, since))
    return joined(waiting) if waiting else None


def _ranks(producer: Indices, is_counted: Flags) -> Indices:
    """For each row, how many counted rows of its producer come before it; the rows are sorted by producer."""
    counted: Indices = numpy.cumsum(is_counted) - is_counted
    begins = numpy.searchsorted(producer, producer)
    ranks: Indices = counted - counted[begins]
    return ranks
