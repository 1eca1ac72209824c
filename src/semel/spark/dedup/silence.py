"""Decides which producers were silent for long enough to be forgotten. Pure.

A bucket is judged only when rows come for it, and cannot tell a query that did not run from a stream without rows. So
the time since its last rows must never count in full: a producer is not silent while the query does not run.
"""

from typing import Final, NamedTuple

from semel.spark.dedup.key_table import Flags, Integers

STEPS_MIN: Final = 7
"""The time between two batches with rows counts for at most a seventh of `forget_after`. So a query that runs once a
day counts whole days if producers are forgotten after a week."""


class LastHeard(NamedTuple):
    """When the last row of each producer came, on a clock that stood still while the query did not run, and which
    producers are still remembered."""

    at_ms: Integers
    is_remembered: Flags


def last_heard(at_ms: Integers, now_ms: int, forget_ms: int) -> LastHeard:
    """If in doubt, a producer is remembered: that costs memory, but if it were forgotten, its copies would count as
    new."""
    if not len(at_ms):
        return LastHeard(at_ms, at_ms >= now_ms)
    step_ms = max(1, forget_ms // STEPS_MIN)
    # If the clock was ahead in one batch, this moves all times forward with it, too.
    absent_ms = max(0, now_ms - int(at_ms.max()) - step_ms)
    at_ms = at_ms + absent_ms
    # One step more than `forget_ms`, so that the absence that has just ended does not count against any producer.
    return LastHeard(at_ms, at_ms >= now_ms - forget_ms - step_ms)
