"""What a retry budget counts."""

from typing import Final

from semel.metrics.counters import Counter

RETRIES: Final = Counter(
    "semel_retries_total",
    "Retries: made at once, made later because the budget was used up, or refused for that reason.",
    outcomes=("made", "held_back", "refused"),
)
