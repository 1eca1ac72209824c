"""The counters of the broker: plain integers, which become text only when a client asks for them.

Batches are counted by outcome: accepted, duplicate, gap, fenced. The sum of these is the number of judged batches.
"""

from bisect import bisect_left
from typing import Final, Literal

# Upper bounds of the latency histograms, in seconds: from a request served in memory to a disk that is stuck.
LATENCY_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

# The ways a transaction may end: by its producer, because a successor claimed its id, or by its timeout.
TransactionOutcome = Literal["committed", "aborted", "fenced", "timed_out"]


class Histogram:
    """How many observations fell below each bound; the last counter is for those above all bounds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.total += seconds


class Metrics:
    """The counters of one broker since it started."""

    __slots__ = (
        "accepted_batches",
        "accepted_records",
        "access_denied",
        "bytes_in",
        "bytes_out",
        "checkpoints",
        "committed_offsets",
        "compacted_bytes",
        "compaction_removed_records",
        "compaction_seconds",
        "compaction_unopened_batches",
        "compactions",
        "connections_open",
        "connections_opened",
        "connections_refused",
        "duplicate_batches",
        "ended_transactions",
        "fenced_batches",
        "fenced_requests",
        "forgotten_offsets",
        "forgotten_producers",
        "forgotten_transactional_ids",
        "gap_batches",
        "group_events",
        "latencies",
        "logins",
        "lost_leases",
        "protocol_errors",
        "refused_batches",
        "refused_handshakes",
        "refused_logins",
        "refused_producers",
        "repeated_nonces",
        "slot_bytes",
        "slot_creates",
        "slots",
        "storage_errors",
        "sync_waiters",
        "synced_entries_bytes",
        "syncs",
        "throttled_requests",
    )

    def __init__(self) -> None:
        self.accepted_batches = 0
        self.accepted_records = 0
        self.duplicate_batches = 0
        self.lost_leases = 0
        self.gap_batches = 0
        self.fenced_batches = 0
        self.refused_batches = 0
        self.ended_transactions: dict[TransactionOutcome, int] = dict.fromkeys(
            ("committed", "aborted", "fenced", "timed_out"), 0
        )
        # Requests about transactions whose sender was fenced, by a successor or by a timeout.
        self.fenced_requests = 0
        # Events of groups, by name.
        self.group_events = dict.fromkeys(("group_rebalanced", "group_emptied", "member_expired"), 0)
        # Requests, or parts of requests, whose client lacked a right.
        self.access_denied = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_open = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        # Requests after which the broker stopped reading from a client for a while, because of a quota.
        self.throttled_requests = 0
        self.logins = 0
        self.refused_logins = 0
        # Logins by SCRAM in the form of librdkafka before 2.6.1.
        self.repeated_nonces = 0
        self.refused_handshakes = 0
        self.storage_errors = 0
        self.checkpoints = 0
        # Compaction: passes, bytes read, records removed, and batches left alone because they could not be opened.
        self.compactions = 0
        self.compacted_bytes = 0
        self.compaction_removed_records = 0
        self.compaction_unopened_batches = 0
        self.compaction_seconds = 0.0
        # Offsets that consumers and transactions committed.
        self.committed_offsets = 0
        # Offsets that expired.
        self.forgotten_offsets = 0
        # Producers, each counted in each of its partitions, and transactional ids that were unused for too long.
        self.forgotten_producers = 0
        # Attempts to put a producer on record that a limit refused.
        self.refused_producers = 0
        self.forgotten_transactional_ids = 0
        self.syncs = 0
        # Connections that waited for these syncs: divided by `syncs` this is the size of a group commit.
        self.sync_waiters = 0
        self.synced_entries_bytes = 0
        self.latencies: dict[int, Histogram] = {}
        # Slots that were created in a store, and how long the store took to acknowledge each.
        self.slots = 0
        self.slot_bytes = 0
        self.slot_creates = Histogram()

    @property
    def batches(self) -> dict[str, int]:
        """Batches that clients sent, by their outcome; only accepted ones were written."""
        return {
            "accepted": self.accepted_batches,
            "duplicate": self.duplicate_batches,
            "gap": self.gap_batches,
            "fenced": self.fenced_batches,
            "refused": self.refused_batches,
        }

    @property
    def judged_batches(self) -> int:
        """Batches with a claim, on which there was a verdict."""
        return self.accepted_batches + self.duplicate_batches + self.gap_batches + self.fenced_batches

    def note_slot(self, seconds: float, size: int) -> None:
        """The store has acknowledged a slot."""
        self.slots += 1
        self.slot_bytes += size
        self.slot_creates.observe(seconds)

    def observe_latency(self, api_key: int, seconds: float) -> None:
        histogram = self.latencies.get(api_key)
        if histogram is None:
            histogram = self.latencies[api_key] = Histogram()
        histogram.observe(seconds)
