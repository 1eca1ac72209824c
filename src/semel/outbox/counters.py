"""What the outbox counts."""

from typing import Final

from semel.metrics.counters import Counter

PUBLISHED: Final = Counter("semel_outbox_messages_total", "Messages that the relay brought into the log.")
QUARANTINED: Final = Counter(
    "semel_outbox_put_aside_total", "Messages that the broker refused, or that cannot be records."
)
FENCED: Final = Counter("semel_outbox_fenced_total", "Relays that ended because another one has taken their shard.")
