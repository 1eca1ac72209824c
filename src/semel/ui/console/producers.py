"""Producers of a topic: those that its partitions remember, how far each is, and which sequence number it may send
next.

A leader remembers each producer's epoch and last sequence number. No request of the protocol gives the batches of its
window, by which retries are recognised: a broker of semel shows them at the address of its metrics, and the page has
them if the console knows that address.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from semel.client import admin, transactional_ids
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker
from semel.client.patience import Moved
from semel.client.places import TopicPartition
from semel.client.topics import partitions_of, topic_of
from semel.ui.console.broker_door import BrokerDoor, NotTold, Windows
from semel.ui.console.query import Query
from semel.wire.sequences import WINDOW_BATCHES, advance

# Each partition takes a request, so a topic with more partitions is shown in pages.
PARTITIONS_MAX: Final = 50
# Only the producers that wrote last are shown.
PRODUCERS_MAX: Final = 100

Answer = dict[str, Any]


def of_topic(cluster: Cluster, query: Query, door: BrokerDoor | None = None) -> Answer:
    """The producers that wrote last to the partitions of one page of a topic."""
    topic = topic_of(cluster, query.text("topic"))
    partitions, about = query.page_of(partitions_of(topic), PARTITIONS_MAX)
    names = _transactional_ids(cluster)
    windows, why_no_windows = _windows(door, topic.name, partitions)
    rows: list[Answer] = []
    away: list[int] = []
    for where in partitions:
        try:
            for one in admin.producers_of(cluster, where):
                window = windows.get((where.partition, one.producer_id))
                rows.append({**_row(where, one, names.get(one.producer_id)), "window": window})
        except Moved:
            away.append(where.partition)
    rows.sort(key=lambda one: (-one["heard_ms"], one["partition"], one["producer_id"]))
    return {
        **about,
        "topic": topic.name,
        "count": len(rows),
        "away": away,
        "window_batches": WINDOW_BATCHES,
        "why_no_windows": why_no_windows,
        "producers": rows[:PRODUCERS_MAX],
    }


def _windows(door: BrokerDoor | None, topic: str, partitions: Sequence[TopicPartition]) -> tuple[Windows, str | None]:
    """The windows, or why there are none."""
    if door is None or not partitions:
        return {}, "the console was not told where the broker serves its metrics (--decisions HOST:PORT)"
    try:
        return door.windows(topic, partitions[0].partition), None
    except NotTold as error:
        return {}, str(error)


def _transactional_ids(cluster: Cluster) -> dict[int, str]:
    """The transactional ids by producer id, as far as the console's login may see them."""
    with contextlib.suppress(AuthenticationFailed, RefusedByBroker):
        listed = transactional_ids.listed(cluster)
        return {one.producer_id: one.name for ids in listed.values() for one in ids}
    return {}


def _row(where: TopicPartition, producer: Any, name: str | None) -> Answer:
    last = producer.last_sequence
    begun = producer.current_txn_start_offset
    return {
        "partition": where.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transactional_id": name,
        "heard_ms": producer.last_timestamp,
        "last_sequence": last if last >= 0 else None,
        "next_sequence": advance(last, 1) if last >= 0 else 0,
        "begun": begun if begun >= 0 else None,
    }
