"""The broker's counters as Prometheus' text format, version 0.0.4. Made only when a client asks; changes nothing.

Label values are always names from this program and never from a client, so the number of series is bounded, and nothing
has to be escaped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from semel.log.broker.broker import Broker
from semel.log.broker.metrics import LATENCY_BOUNDS, Histogram, Metrics
from semel.log.broker.readiness import why_not_ready
from semel.log.replica.health import KINDS
from semel.log.storage.space import space_at
from semel.wire.versions import NAMES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# The labels as text, and the value.
_Sample = tuple[str, float]


def exposition(broker: Broker) -> str:
    """All metrics of a broker at this moment."""
    return "\n".join(
        (
            *_counters(broker.metrics),
            *_transactions(broker),
            *_groups(broker),
            *_durability(broker),
            *_store(broker),
            *_connections(broker),
            *_certificates(broker),
            *_state(broker),
            *_latency(broker),
            "",
        )
    )


def _family(kind: str, name: str, text: str, samples: Iterable[_Sample] | float) -> Iterator[str]:
    yield f"# HELP semel_{name} {text}"
    yield f"# TYPE semel_{name} {kind}"
    if isinstance(samples, int | float):
        samples = (("", samples),)
    for labels, value in samples:
        yield f"semel_{name}{labels} {value}"


def _gauge(name: str, text: str, samples: Iterable[_Sample] | float) -> Iterator[str]:
    return _family("gauge", name, text, samples)


def _counters(metrics: Metrics) -> Iterator[str]:
    for name, text, count in metrics.plain():
        yield from _family("counter", name, text, count)
    yield from _family(
        "counter",
        "batches_total",
        "Batches that clients sent, by their outcome; only accepted ones were written.",
        _by("outcome", metrics.batches),
    )
    yield from _family(
        "counter",
        "transactions_total",
        "Transactions that ended: as their producer wished, fenced by a successor, or because they took too long.",
        _by("outcome", metrics.ended_transactions),
    )
    yield from _family(
        "counter",
        "group_events_total",
        "Completed rebalances, groups that became empty, and members that were removed as silent or late.",
        _by("event", metrics.group_events),
    )
    yield from _family(
        "counter",
        "shared_records_total",
        "Records of share groups: acquired, what members said of them, timed out, or archived after the last delivery.",
        _by("event", metrics.shared_records),
    )


def _by(label: str, counts: Mapping[Any, int]) -> list[_Sample]:
    return [(f'{{{label}="{name}"}}', count) for name, count in counts.items()]


def _transactions(broker: Broker) -> Iterator[str]:
    transactions = broker.log.state.transactions
    yield from _gauge("open_transactions", "Transactions that are open.", transactions.open_count)
    yield from _gauge("transactional_ids", "Transactional ids on record.", len(transactions))


def _groups(broker: Broker) -> Iterator[str]:
    groups = broker.log.state.groups
    yield from _gauge("groups", "Consumer groups.", len(groups))
    machines = [group.machine for group in groups if group.machine is not None]
    states = Counter(machine.state_name for machine in machines)
    yield from _gauge(
        "groups_with_members",
        "Consumer groups that have or had members, by state.",
        _by("state", dict(sorted(states.items()))),
    )
    yield from _gauge(
        "group_offsets", "Offsets of all groups, those of open transactions included.", groups.offset_count
    )


def _durability(broker: Broker) -> Iterator[str]:
    log = broker.log
    yield from _gauge("journal_position_bytes", "The position at the end of the journal.", log.end)
    yield from _gauge("journal_synced_bytes", "The position up to which the journal is durable.", log.synced)
    yield from _gauge("journal_lag_bytes", "Journal bytes that are not durable yet.", log.end - log.synced)
    yield from _gauge(
        "set_aside_files",
        "Files that the last start put aside, because nothing in the log claims them.",
        len(log.put_aside),
    )
    space = None if broker.data is None else space_at(broker.data)
    yield from _gauge(
        "disk_free_bytes",
        "Free space of the disk with the data directory; nothing is shown without one.",
        () if space is None else space.free_bytes,
    )
    yield from _gauge("disk_bytes", "Size of that disk.", () if space is None else space.bytes)
    objects = broker.role.scrubber
    yield from _gauge(
        "damaged_segments",
        "Sealed segments, or objects with records in the store, that were found damaged; readers get CORRUPT_MESSAGE.",
        len(log.damage.marks) + (0 if objects is None else len(objects.damaged)),
    )
    yield from _gauge(
        "up",
        "1, or 0 while the broker can do nothing for clients: the disk has failed, or the store does not work.",
        int(not why_not_ready(broker)),
    )


def _store(broker: Broker) -> Iterator[str]:
    role = broker.role
    yield from _gauge(
        "active",
        "1, or 0 while another broker on the store is active, or may be because this one has no lease.",
        int(role.may_serve),
    )
    yield from _family(
        "counter",
        "takeovers_total",
        "How often a broker on the store has taken over from another one, since the store was first used.",
        role.takeovers,
    )
    yield from _gauge(
        "standby_lag_bytes",
        "Bytes of the journal that a standby broker has yet to read; 0 on the active one.",
        role.lag_bytes,
    )
    yield from _gauge(
        "store_under_way_bytes",
        "Journal bytes that were sent to the store and that it has not acknowledged yet.",
        role.bytes_under_way,
    )
    health = role.health
    yield from _gauge(
        "store_failing_seconds",
        "For how long the store has answered no call of some kind, or has refused all; 0 while it works.",
        0 if health is None else health.failing_seconds,
    )
    errors = dict.fromkeys(KINDS, 0) if health is None else health.errors
    yield from _family(
        "counter",
        "store_errors_total",
        "Calls of the store that failed: it was full, refused the call until a person acts, gave no answer in time, or "
        "another one that leaves the outcome unsure.",
        _by("kind", errors),
    )
    cache = role.cache
    yield from _gauge(
        "cache_bytes",
        "Bytes in the data directory that are in the store as well; the rest was written since the last checkpoint.",
        0 if cache is None else cache.files.cached_bytes,
    )
    yield from _family(
        "counter",
        "cache_fetches_total",
        "Parts of files that a client or a checkpoint needed and that had to come from the store.",
        0 if cache is None else cache.fetches,
    )
    yield from _family(
        "counter",
        "cache_fetched_bytes_total",
        "Bytes of those parts that came from the store.",
        0 if cache is None else cache.fetched_bytes,
    )
    yield from _histogram(
        "store_create_seconds",
        "From the sending of a slot to the acknowledgement of the store.",
        {"": broker.metrics.slot_creates},
    )


def _connections(broker: Broker) -> Iterator[str]:
    yield from _gauge("connections", "Connections that are open.", broker.metrics.connections_open)
    yield from _gauge("receive_buffer_bytes", "Memory of the receive buffers.", broker.receive_memory.taken_bytes)
    yield from _gauge("unsent_bytes", "Bytes of answers that clients have not taken yet.", broker.unsent_bytes)


def _certificates(broker: Broker) -> Iterator[str]:
    expires_at = broker.doors.certificate_expires_at
    yield from _gauge(
        "certificate_expiry_timestamp_seconds",
        "When the broker's certificate, or one of those with which it is signed in the same file, expires, in seconds "
        "since 1970; nothing is shown without TLS.",
        () if expires_at is None else expires_at,
    )


def _state(broker: Broker) -> Iterator[str]:
    log = broker.log
    yield from _gauge("access_rules", "Access rules that exist.", len(log.state.access))
    yield from _gauge("topics", "Topics.", len(log.state.catalog))
    yield from _gauge("partitions", "Partitions of all topics.", log.state.catalog.partition_count)
    states = log.state.partitions.producer_count
    yield from _gauge("producer_states", "Producers on record, each counted in each of its partitions.", states)
    yield from _gauge("fetch_sessions", "Sessions of incremental fetches.", len(broker.fetch_sessions))


def _latency(broker: Broker) -> Iterator[str]:
    yield from _histogram(
        "request_seconds",
        "From a request's arrival to the sending of its answer; a fetch may wait for records.",
        {f'api="{NAMES[api_key]}"': one for api_key, one in sorted(broker.metrics.latencies.items())},
    )


def _histogram(name: str, text: str, by_label: dict[str, Histogram]) -> Iterator[str]:
    yield f"# HELP semel_{name} {text}"
    yield f"# TYPE semel_{name} histogram"
    for label, histogram in by_label.items():
        count = 0
        for bound, below in zip((*LATENCY_BOUNDS, "+Inf"), histogram.counts, strict=True):
            count += below
            yield f'semel_{name}_bucket{{{label}{"," if label else ""}le="{bound}"}} {count}'
        labels = f"{{{label}}}" if label else ""
        yield f"semel_{name}_sum{labels} {histogram.total}"
        yield f"semel_{name}_count{labels} {count}"
