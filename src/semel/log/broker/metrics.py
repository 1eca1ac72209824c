"""The counters of the broker: plain integers, which become text only when a client asks for them.

Batches are counted by outcome: accepted, duplicate, gap, fenced. The sum of these is the number of judged batches.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Annotated, Final, Literal

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
    """The counters of one broker since it started. Each that is annotated is shown under that name, with that text."""

    accepted_records: Annotated[int, "records_total", "Records in accepted batches."] = 0
    compactions: Annotated[int, "compactions_total", "Passes over compacted partitions."] = 0
    compacted_bytes: Annotated[int, "compacted_bytes_total", "Bytes of segments that compaction read."] = 0
    compaction_removed_records: Annotated[
        int, "compaction_removed_records_total", "Records that compaction removed."
    ] = 0
    compaction_seconds: Annotated[float, "compaction_seconds_total", "Time that compaction took."] = 0.0
    compaction_unopened_batches: Annotated[
        int,
        "compaction_unopened_batches_total",
        "Batches that compaction left as they are, because they cannot be decompressed or would be too large.",
    ] = 0
    forgotten_producers: Annotated[
        int,
        "forgotten_producers_total",
        "Producers that were silent for too long, each counted in each of its partitions.",
    ] = 0
    refused_producers: Annotated[
        int,
        "refused_producers_total",
        "Refusals to put a producer on record, because the limit was reached, or one address had taken its share.",
    ] = 0
    forgotten_transactional_ids: Annotated[
        int,
        "forgotten_transactional_ids_total",
        "Transactional ids that were forgotten because they were not used for too long.",
    ] = 0
    fenced_requests: Annotated[
        int, "fenced_requests_total", "Requests about transactions whose sender had a successor, or had taken too long."
    ] = 0
    committed_offsets: Annotated[
        int, "committed_offsets_total", "Offsets that consumers and transactions committed."
    ] = 0
    forgotten_offsets: Annotated[int, "forgotten_offsets_total", "Offsets that expired."] = 0
    syncs: Annotated[int, "fsyncs_total", "Syncs of the journal."] = 0
    sync_waiters: Annotated[
        int,
        "fsync_waiters_total",
        "Connections that waited for those syncs; divided by semel_fsyncs_total, the mean size of a group commit.",
    ] = 0
    synced_entries_bytes: Annotated[int, "fsynced_bytes_total", "Journal bytes that were synced."] = 0
    checkpoints: Annotated[int, "checkpoints_total", "Checkpoints that were written."] = 0
    scrubbed_bytes: Annotated[int, "scrubbed_bytes_total", "Bytes of sealed segments that were verified."] = 0
    scrub_passes: Annotated[int, "scrub_passes_total", "Passes in which all sealed segments were verified."] = 0
    failed_reads: Annotated[
        int, "failed_reads_total", "Reads of records that failed, because the disk or the store lost or changed them."
    ] = 0
    storage_errors: Annotated[int, "storage_errors_total", "Writes that the disk refused."] = 0
    lost_leases: Annotated[
        int,
        "lost_leases_total",
        "How often this broker was active and gave its clients up, because the store did not renew its lease.",
    ] = 0
    slots: Annotated[int, "store_slots_total", "Slots that were created in the store."] = 0
    slot_bytes: Annotated[int, "store_slot_bytes_total", "Bytes of those slots."] = 0
    connections_opened: Annotated[int, "connections_total", "Connections that were opened."] = 0
    connections_refused: Annotated[
        int, "connections_refused_total", "Connections that were refused because there were too many."
    ] = 0
    protocol_errors: Annotated[
        int, "protocol_errors_total", "Connections that were closed because of an invalid request."
    ] = 0
    access_denied: Annotated[int, "access_denied_total", "Requests, or parts of them, whose client lacked a right."] = 0
    logins: Annotated[int, "logins_total", "Logins that succeeded."] = 0
    refused_logins: Annotated[int, "logins_refused_total", "Logins that failed."] = 0
    repeated_nonces: Annotated[
        int,
        "logins_repeated_nonce_total",
        "Logins by SCRAM in the form of librdkafka before 2.6.1, which Apache Kafka refuses from version 4 on.",
    ] = 0
    throttled_requests: Annotated[
        int, "requests_throttled_total", "Requests after which a client had to wait because of a quota."
    ] = 0
    refused_handshakes: Annotated[int, "handshakes_refused_total", "TLS handshakes that failed."] = 0
    bytes_in: Annotated[int, "received_bytes_total", "Bytes that clients sent."] = 0
    bytes_out: Annotated[int, "sent_bytes_total", "Bytes that were sent to clients."] = 0
    connections_open = 0
    accepted_batches = 0
    duplicate_batches = 0
    gap_batches = 0
    fenced_batches = 0
    refused_batches = 0

    def __init__(self) -> None:
        self.ended_transactions: dict[TransactionOutcome, int] = dict.fromkeys(
            ("committed", "aborted", "fenced", "timed_out"), 0
        )
        # Events of groups, by name.
        self.group_events = dict.fromkeys(("group_rebalanced", "group_emptied", "member_expired"), 0)
        # Records of share groups, by what happened to them.
        self.shared_records = dict.fromkeys(
            ("acquired", "accepted", "released", "rejected", "renewed", "timed_out", "archived"), 0
        )
        self.latencies: dict[int, Histogram] = {}
        # How long the store took to acknowledge each slot.
        self.slot_creates = Histogram()

    def plain(self) -> Iterator[tuple[str, str, float]]:
        """The name of each plain counter, what it counts, and how much."""
        for attribute, annotation in Metrics.__annotations__.items():
            name, text = annotation.__metadata__
            yield name, text, getattr(self, attribute)

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
