"""Counts the rows of a query by what happens to them: in its metrics, and in one line of the log for each batch.

Spark counts while it computes a batch, and reports the counts with the query's progress (`observedMetrics`). A batch of
which a part is computed twice is counted twice in that part: nothing may be decided by these counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG: Final = logging.getLogger(__name__)
# Before the names of metrics that are logged: a user may have others in the same query.
PREFIX: Final = "semel."
# What is as it should be. Every other count is of rows that a person has to look at, or has to put somewhere.
USUAL: Final = frozenset(("accepted", "duplicate"))


def counted(rows: DataFrame, name: str, conditions: Mapping[str, str]) -> DataFrame:
    """The same rows; the metric `semel.<name>` counts for how many each condition is true."""
    from pyspark.sql import functions as f

    counts = [f.count_if(f.expr(condition)).alias(label) for label, condition in conditions.items()]
    return rows.observe(f"{PREFIX}{name}", *counts)


def log_counts(query_id: str, batch_id: int, counts: Mapping[str, Mapping[str, int]]) -> None:
    """One line for the batch, if anything was counted."""
    if words := words_of(counts):
        _LOG.log(level_of(counts), "query %s, batch %d: %s", query_id, batch_id, words)


def level_of(counts: Mapping[str, Mapping[str, int]]) -> int:
    """A warning, which Python shows unless a program says otherwise, if a person has to look at some rows."""
    is_usual = all(label in USUAL or not count for each in counts.values() for label, count in each.items())
    return logging.INFO if is_usual else logging.WARNING


def words_of(counts: Mapping[str, Mapping[str, int]]) -> str:
    """For example `dedup: 97 accepted, 2 duplicate, 1 unclaimed`."""
    said = {
        name: ", ".join(f"{count} {label}" for label, count in each.items() if count) for name, each in counts.items()
    }
    return "; ".join(f"{name}: {words}" for name, words in said.items() if words)
