"""The broker's counters as Prometheus' text format, version 0.0.4. Made only when a client asks; changes nothing.

Label values are always names from this program and never from a client, so the number of series is bounded, and nothing
has to be escaped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from semel.log.broker.apis import HANDLERS
from semel.log.broker.broker import Broker
from semel.log.broker.metrics import LATENCY_BOUNDS, Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# The module of a handler is named after its API: `init_producer_id` serves InitProducerId.
_API_NAMES: Final = {
    api_key: "".join(word.capitalize() for word in handler.__module__.rpartition(".")[2].split("_"))
    for api_key, handler in HANDLERS.items()
}

# The labels as text, and the value.
_Sample = tuple[str, float]


def exposition(broker: Broker) -> str:
    """All metrics of a broker at this moment."""
    return "\n".join(
        (
            *_batches(broker),
            *_transactions(broker),
            *_groups(broker),
            *_compaction(broker),
            *_durability(broker),
            *_store(broker),
            *_connections(broker),
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


def _batches(broker: Broker) -> Iterator[str]:
    metrics = broker.metrics
    yield from _family(
        "counter",
        "batches_total",
        "Batches that clients sent, by their outcome; only accepted ones were written.",
        [(f'{{outcome="{outcome}"}}', count) for outcome, count in metrics.batches.items()],
    )
    yield from _family("counter", "records_total", "Records in accepted batches.", metrics.accepted_records)


def _compaction(broker: Broker) -> Iterator[str]:
    metrics = broker.metrics
    yield from _family("counter", "compactions_total", "Passes over compacted partitions.", metrics.compactions)
    yield from _family(
        "counter", "compacted_bytes_total", "Bytes of segments that compaction read.", metrics.compacted_bytes
    )
    yield from _family(
        "counter",
        "compaction_removed_records_total",
        "Records that compaction removed.",
        metrics.compaction_removed_records,
    )
    yield from _family("counter", "compaction_seconds_total", "Time that compaction took.", metrics.compaction_seconds)
    yield from _family(
        "counter",
        "compaction_unopened_batches_total",
        "Batches that compaction left as they are, because they cannot be decompressed or would be too large.",
        metrics.compaction_unopened_batches,
    )


def _transactions(broker: Broker) -> Iterator[str]:
    metrics, transactions = broker.metrics, broker.log.state.transactions
    yield from _family(
        "counter",
        "transactions_total",
        "Transactions that ended: as their producer wished, fenced by a successor, or because they took too long.",
        [(f'{{outcome="{outcome}"}}', count) for outcome, count in metrics.ended_transactions.items()],
    )
    yield from _family("gauge", "open_transactions", "Transactions that are open.", transactions.open_count)
    yield from _family("gauge", "transactional_ids", "Transactional ids on record.", len(transactions))
    yield from _family(
        "counter",
        "forgotten_producers_total",
        "Producers that were silent for too long, each counted in each of its partitions.",
        metrics.forgotten_producers,
    )
    yield from _family(
        "counter",
        "refused_producers_total",
        "Refusals to put a producer on record, because the limit was reached, or one address had taken its share.",
        metrics.refused_producers,
    )
    yield from _family(
        "counter",
        "forgotten_transactional_ids_total",
        "Transactional ids that were forgotten because they were not used for too long.",
        metrics.forgotten_transactional_ids,
    )
    yield from _family(
        "counter",
        "fenced_requests_total",
        "Requests about transactions whose sender had a successor, or had taken too long.",
        metrics.fenced_requests,
    )


def _groups(broker: Broker) -> Iterator[str]:
    metrics, groups = broker.metrics, broker.log.state.groups
    yield from _family("gauge", "groups", "Consumer groups.", len(groups))
    machines = [group.machine for group in groups if group.machine is not None]
    states = Counter(machine.state_name for machine in machines)
    yield from _family(
        "gauge",
        "groups_with_members",
        "Consumer groups that have or had members, by state.",
        [(f'{{state="{state}"}}', count) for state, count in sorted(states.items())],
    )
    yield from _family(
        "counter",
        "group_events_total",
        "Completed rebalances, groups that became empty, and members that were removed as silent or late.",
        [(f'{{event="{event}"}}', count) for event, count in metrics.group_events.items()],
    )
    yield from _family(
        "gauge", "group_offsets", "Offsets of all groups, those of open transactions included.", groups.offset_count
    )
    yield from _family(
        "counter",
        "committed_offsets_total",
        "Offsets that consumers and transactions committed.",
        metrics.committed_offsets,
    )
    yield from _family("counter", "forgotten_offsets_total", "Offsets that expired.", metrics.forgotten_offsets)


def _durability(broker: Broker) -> Iterator[str]:
    metrics, log = broker.metrics, broker.log
    yield from _family("counter", "fsyncs_total", "Syncs of the journal.", metrics.syncs)
    yield from _family(
        "counter",
        "fsync_waiters_total",
        "Connections that waited for those syncs; divided by semel_fsyncs_total, the mean size of a group commit.",
        metrics.sync_waiters,
    )
    yield from _family(
        "counter", "fsynced_bytes_total", "Journal bytes that were synced.", metrics.synced_entries_bytes
    )
    yield from _family("gauge", "journal_position_bytes", "The position at the end of the journal.", log.end)
    yield from _family("gauge", "journal_synced_bytes", "The position up to which the journal is durable.", log.synced)
    yield from _family("gauge", "journal_lag_bytes", "Journal bytes that are not durable yet.", log.end - log.synced)
    yield from _family("counter", "checkpoints_total", "Checkpoints that were written.", metrics.checkpoints)
    yield from _family("counter", "storage_errors_total", "Writes that the disk refused.", metrics.storage_errors)
    yield from _family(
        "gauge",
        "set_aside_files",
        "Files that the last start put aside, because nothing in the log claims them.",
        len(log.put_aside),
    )
    yield from _family(
        "gauge", "up", "1, or 0 after the disk failed and the broker stopped serving.", int(not broker.failed.done())
    )


def _store(broker: Broker) -> Iterator[str]:
    metrics, role = broker.metrics, broker.role
    yield from _family(
        "gauge",
        "active",
        "1, or 0 while another broker on the store is active, or may be because this one has no lease.",
        int(role.may_serve),
    )
    yield from _family(
        "counter",
        "lost_leases_total",
        "How often this broker was active and gave its clients up, because the store did not renew its lease.",
        metrics.lost_leases,
    )
    yield from _family(
        "counter",
        "takeovers_total",
        "How often a broker on the store has taken over from another one, since the store was first used.",
        role.takeovers,
    )
    yield from _family(
        "gauge",
        "standby_lag_bytes",
        "Bytes of the journal that a standby broker has yet to read; 0 on the active one.",
        role.lag_bytes,
    )
    yield from _family("counter", "store_slots_total", "Slots that were created in the store.", metrics.slots)
    yield from _family("counter", "store_slot_bytes_total", "Bytes of those slots.", metrics.slot_bytes)
    yield from _family(
        "gauge",
        "store_under_way_bytes",
        "Journal bytes that were sent to the store and that it has not acknowledged yet.",
        role.bytes_under_way,
    )
    cache = role.cache
    yield from _family(
        "gauge",
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
        {"": metrics.slot_creates},
    )


def _connections(broker: Broker) -> Iterator[str]:
    metrics = broker.metrics
    yield from _family("gauge", "connections", "Connections that are open.", metrics.connections_open)
    yield from _family("counter", "connections_total", "Connections that were opened.", metrics.connections_opened)
    yield from _family(
        "counter",
        "connections_refused_total",
        "Connections that were refused because there were too many.",
        metrics.connections_refused,
    )
    yield from _family(
        "counter",
        "protocol_errors_total",
        "Connections that were closed because of an invalid request.",
        metrics.protocol_errors,
    )
    yield from _family(
        "counter",
        "access_denied_total",
        "Requests, or parts of them, whose client lacked a right.",
        metrics.access_denied,
    )
    yield from _family("counter", "logins_total", "Logins that succeeded.", metrics.logins)
    yield from _family("counter", "logins_refused_total", "Logins that failed.", metrics.refused_logins)
    yield from _family(
        "counter",
        "logins_repeated_nonce_total",
        "Logins by SCRAM in the form of librdkafka before 2.6.1, which Apache Kafka refuses from version 4 on.",
        metrics.repeated_nonces,
    )
    yield from _family(
        "counter",
        "requests_throttled_total",
        "Requests after which a client had to wait because of a quota.",
        metrics.throttled_requests,
    )
    yield from _family("counter", "handshakes_refused_total", "TLS handshakes that failed.", metrics.refused_handshakes)
    yield from _family("counter", "received_bytes_total", "Bytes that clients sent.", metrics.bytes_in)
    yield from _family("counter", "sent_bytes_total", "Bytes that were sent to clients.", metrics.bytes_out)
    yield from _family(
        "gauge", "receive_buffer_bytes", "Memory of the receive buffers.", broker.receive_memory.taken_bytes
    )
    yield from _family(
        "gauge", "unsent_bytes", "Bytes of answers that clients have not taken yet.", broker.unsent_bytes
    )


def _state(broker: Broker) -> Iterator[str]:
    log = broker.log
    yield from _family("gauge", "access_rules", "Access rules that exist.", len(log.state.access))
    yield from _family("gauge", "topics", "Topics.", len(log.state.catalog))
    yield from _family("gauge", "partitions", "Partitions of all topics.", log.state.catalog.partition_count)
    states = log.state.partitions.producer_count
    yield from _family(
        "gauge", "producer_states", "Producers on record, each counted in each of its partitions.", states
    )
    yield from _family("gauge", "fetch_sessions", "Sessions of incremental fetches.", len(broker.fetch_sessions))


def _latency(broker: Broker) -> Iterator[str]:
    yield from _histogram(
        "request_seconds",
        "From a request's arrival to the sending of its answer; a fetch may wait for records.",
        {f'api="{_API_NAMES[api_key]}"': one for api_key, one in sorted(broker.metrics.latencies.items())},
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
