"""The outcomes of deduplication, and the functions that select rows by them. It must never drop a row: only a user who
reads `accepted(df)` alone decides to drop the others.
"""

from typing import TYPE_CHECKING, Final

from semel.core.producers import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTCOME: Final = "outcome"
EXPECTED: Final = "expected"

ACCEPTED, DUPLICATE, GAP, FENCED = (int(outcome) for outcome in Outcome)
# What the rules of producers have no word for, because a broker never gets to see it.
LATE: Final = len(Outcome)
UNCLAIMED: Final = LATE + 1
HELD: Final = UNCLAIMED + 1

NAMES: Final = (*(outcome.name.lower() for outcome in Outcome), "late", "unclaimed")
"""By number, as the column `outcome` says it. A held row has no name: it is not given out."""


def accepted(df: "DataFrame") -> "DataFrame":
    """The accepted rows, as they were before deduplication."""
    return df.where(df[OUTCOME] == NAMES[ACCEPTED]).drop(OUTCOME, EXPECTED)


def quarantined(df: "DataFrame") -> "DataFrame":
    """The rows that somebody has to look at: neither accepted nor known to be there already."""
    return df.where(_is_none_of(df[OUTCOME], NAMES[ACCEPTED], NAMES[DUPLICATE]))


def _is_none_of(column: "Column", *names: str) -> "Column":
    return ~column.isin(*names)
