"""Who was silent for so long that nobody waits for him. Pure.

A bucket hears its clock when rows come for it, and cannot tell a query that was away from a stream in which nothing
came. So the time since its last rows must never count in full: an absence of the query is nobody's silence.
"""

from typing import Final, NamedTuple

from semel.spark.dedup.key_table import Flags, Integers

STEPS_MIN: Final = 7
"""Of the time between two batches with rows at most a seventh of what makes a silence counts, so a query that runs once
a day counts its days where a silence takes a week."""


class Heard(NamedTuple):
    """When each was heard, on a clock that stood still while the query was away, and who is remembered by that."""

    at_ms: Integers
    is_remembered: Flags


def heard(at_ms: Integers, now_ms: int, forget_ms: int) -> Heard:
    """Whoever is in doubt is remembered: that costs memory, and to forget him would take his copies for new."""
    if not len(at_ms):
        return Heard(at_ms, at_ms >= now_ms)
    step_ms = max(1, forget_ms // STEPS_MIN)
    # A clock that was ahead for one batch moves all of them along with it, too.
    absent_ms = max(0, now_ms - int(at_ms.max()) - step_ms)
    at_ms = at_ms + absent_ms
    # One absence takes nothing off the time that has to go by without.
    return Heard(at_ms, at_ms >= now_ms - forget_ms - step_ms)
