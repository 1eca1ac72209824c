"""Asks `wire.sequences` about many claims at once: with the same answers as for each alone, and much faster.

In one batch the order of arrival means nothing, because files and shuffles do not keep it. So the claims of a producer
are first sorted by (epoch, number), where numbers count from the expected one, so that a run continues across the wrap;
of copies, the one that arrived first comes first. In this order, consecutive numbers are a run, and core is asked once
for a run. A copy of an accepted claim is its duplicate; any other copy gets the outcome of its claim.

This file must never decide which number is next, known or fenced: only `wire.sequences` says that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy

from semel.spark.dedup.key_table import Flags, Indices, Integers, group
from semel.spark.dedup.producer_states import ProducerStates
from semel.wire.sequences import (
    RUN_RECORDS_MAX,
    SEQUENCE_MASK,
    Outcome,
    advance,
    epoch_of,
    judge_run,
    next_of,
    note_run,
)

_NUMBER_BITS: Final = SEQUENCE_MASK.bit_length()
_ACCEPTED: Final = Outcome.ACCEPTED
_HAVE_EXPECTED: Final = (Outcome.GAP, Outcome.FENCED)


class Claims(NamedTuple):
    """Arrays of equal length, in the order of arrival: both halves of the producer's key, its epoch, its number."""

    high: Integers
    low: Integers
    epoch: Integers
    number: Integers


@dataclass(frozen=True)
class Judged:
    """The verdicts on the claims: arrays of equal length, in the order in which the claims were judged."""

    order: Indices
    """The place of the claim in the order of arrival."""
    producer: Indices
    epoch: Integers
    number: Integers
    original: Indices
    """The place, in the order of judging, of the first claim with the same producer, epoch and number: its own, unless
    it is a copy."""
    outcome: Integers
    expected: Integers
    """The number or epoch that would have been accepted; -1 for an accepted claim and for a duplicate."""
    final_epoch: Integers
    """The epoch of its producer after the batch; -1 while none of its claims was accepted."""
    producers: ProducerStates

    @property
    def is_copy(self) -> Flags:
        is_copy: Flags = self.original != numpy.arange(len(self.original))
        return is_copy


def judge_claims(claims: Claims, producers: ProducerStates, *, is_new: bool, now_ms: int) -> Judged:
    """`is_new` says that a producer without state is new: none was forgotten."""
    arrived, producer, first = group(claims.high, claims.low)
    high, low = claims.high[first], claims.low[first]
    states = producers.of(high, low)
    unknown_from = numpy.zeros(len(first), numpy.int64) if is_new else claims.number[first]
    place = claims.epoch << _NUMBER_BITS | _places(claims, producer, states, unknown_from)
    order = _in_order(arrived, producer, place)
    producer, epoch, number = producer[order], claims.epoch[order], claims.number[order]

    same_sender = (producer[1:] == producer[:-1]) & (epoch[1:] == epoch[:-1])
    begins = numpy.ones(len(order), bool)
    begins[1:] = ~same_sender | (number[1:] != number[:-1])
    leaders = numpy.flatnonzero(begins)
    leader_of = numpy.cumsum(begins) - 1
    outcome, expected = _ask(producer[leaders], epoch[leaders], number[leaders], states, is_new, now_ms)
    outcome, expected = outcome[leader_of], expected[leader_of]
    outcome[~begins & (outcome == _ACCEPTED)] = Outcome.DUPLICATE
    final_epoch = numpy.array([-1 if state is None else epoch_of(state) for state in states], numpy.int64)
    return Judged(
        order,
        producer,
        epoch,
        number,
        leaders[leader_of],
        outcome,
        expected,
        final_epoch[producer],
        producers.noted(high, low, states, now_ms),
    )


def _in_order(arrived: Indices, producer: Indices, place: Integers) -> Indices:
    """Sorts by producer, then by place, then by arrival; `arrived` is sorted by producer already."""
    producer, place = producer[arrived], place[arrived]
    is_sorted = (producer[1:] != producer[:-1]) | (place[1:] >= place[:-1])
    # Mostly the rows of a producer come in order, and need no second sort.
    return arrived if is_sorted.all() else arrived[numpy.lexsort((place, producer))]


def _places(claims: Claims, producer: Indices, states: list[bytes | None], unknown_from: Integers) -> Integers:
    """The place of each number relative to the one that its producer is expected to send; half of all numbers count as
    later than that."""
    known_epoch, expected = numpy.full(len(states), -1, numpy.int64), unknown_from.copy()
    for number, state in enumerate(states):
        if state is not None:
            known_epoch[number] = epoch_of(state)
            expected[number] = next_of(state)
    begins_anew = (known_epoch[producer] != claims.epoch) & (known_epoch[producer] >= 0)
    seen_from = numpy.where(begins_anew, 0, expected[producer])
    return (claims.number - seen_from + RUN_RECORDS_MAX) & SEQUENCE_MASK


def _ask(
    producer: Indices, epoch: Integers, number: Integers, states: list[bytes | None], is_new: bool, now_ms: int
) -> tuple[Integers, Integers]:
    """Core's verdict on each claim, without copies; updates `states`."""
    counts: list[int] = []
    outcomes: list[int] = []
    wanted: list[int] = []
    for sender, its_epoch, first, count in _runs(producer, epoch, number):
        state = states[sender]
        while count:
            alike, judgement = judge_run(state, is_new, its_epoch, first, count)
            first, count = advance(first, alike), count - alike
            if judgement.outcome is _ACCEPTED:
                state = note_run(state, now_ms, its_epoch, advance(first, -1), alike)
            counts.append(alike)
            outcomes.append(int(judgement.outcome))
            wanted.append(judgement.expected if judgement.outcome in _HAVE_EXPECTED else -1)
        states[sender] = state
    times = numpy.array(counts, numpy.int64)
    return (
        numpy.repeat(numpy.array(outcomes, numpy.int64), times),
        numpy.repeat(numpy.array(wanted, numpy.int64), times),
    )


def _runs(producer: Indices, epoch: Integers, number: Integers) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of one producer and epoch with consecutive numbers: producer, epoch, first number, count."""
    follows = (producer[1:] == producer[:-1]) & (epoch[1:] == epoch[:-1])
    follows &= ((number[:-1] + 1) & SEQUENCE_MASK) == number[1:]
    begins = numpy.flatnonzero(numpy.concatenate([[True], ~follows])[: len(number)])
    counts = numpy.diff(begins, append=len(number))
    return zip(producer[begins].tolist(), epoch[begins].tolist(), number[begins].tolist(), counts.tolist(), strict=True)
