"""What a publisher counts."""

from typing import Final

from semel.metrics.counters import Counter

FENCED: Final = Counter("semel_publish_fenced_total", "Publishers that ended because another has their name.")
