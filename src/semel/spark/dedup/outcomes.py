"""The outcomes of deduplication, and the functions that select rows by them. Deduplication must never drop a row: only
a user who reads nothing but `accepted(df)` decides to drop the others.
"""

from typing import TYPE_CHECKING, Final

from semel.wire.sequences import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTCOME: Final = "outcome"
EXPECTED: Final = "expected"

ACCEPTED, DUPLICATE, GAP, FENCED = (int(outcome) for outcome in Outcome)
# Outcomes that the rules of producers do not have, because they never occur in a broker.
LATE: Final = len(Outcome)
UNCLAIMED: Final = LATE + 1
HELD: Final = UNCLAIMED + 1

NAMES: Final = (*(outcome.name.lower() for outcome in Outcome), "late", "unclaimed")
"""The values of the column `outcome`, by number. A held row has no name, because it is not returned."""


def accepted(df: "DataFrame") -> "DataFrame":
    """The accepted rows, as they were before deduplication."""
    return df.where(df[OUTCOME] == NAMES[ACCEPTED]).drop(OUTCOME, EXPECTED)


def quarantined(df: "DataFrame") -> "DataFrame":
    """The rows that a person has to look at: neither accepted nor known to be duplicates."""
    return df.where(_is_none_of(df[OUTCOME], NAMES[ACCEPTED], NAMES[DUPLICATE]))


def _is_none_of(column: "Column", *names: str) -> "Column":
    return ~column.isin(*names)
