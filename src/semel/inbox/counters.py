"""What the inbox counts."""

from typing import Final

from semel.metrics.counters import Counter

CLAIMS: Final = Counter(
    "semel_inbox_claims_total",
    "Verdicts on events. A loop counts what it has committed; `once` and its like count before your commit.",
    "consumer",
    outcomes=("accepted", "duplicate", "gap", "quarantined"),
)
REAPED: Final = Counter("semel_inbox_claims_reaped_total", "Claims that were deleted below the floor.", "consumer")
