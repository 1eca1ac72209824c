"""Pipelines: semel's Spark sinks into the log, by the markers that their lanes leave in the progress topics.

A marker is a record that says which batches its lane has written, in the same transaction as their rows. This page
reads the last one that was committed in each lane, as a reader and without a fence: a lane may be further by now. A
record that is no marker is told as such, and must never hide the other lanes.
"""

import json
from typing import Any, Final

from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed
from semel.client.places import EARLIEST, LATEST, Isolation, Topic, TopicPartition
from semel.client.topics import offsets_of, partitions_of
from semel.console.query import Query
from semel.console.records import read_from
from semel.console.topics import led

# How the sinks name their progress topics, unless their user has named another one.
PROGRESS_PREFIX: Final = "semel-progress-"
# Each lane is a request.
SINKS_MAX: Final = 10
LANES_MAX: Final = 50
# How far from the end a marker is looked for: only the ends of aborted transactions come after it.
TAIL_OFFSETS: Final = 64

Answer = dict[str, Any]


def every_sink(cluster: Cluster, query: Query) -> Answer:
    """One page of the sinks in whose names a text is found, each with its lanes."""
    wanted = query.text("find", "").strip().lower()
    every = cluster.every_topic()
    names = sorted(
        name
        for name in every
        if name.startswith(PROGRESS_PREFIX) and wanted in name.removeprefix(PROGRESS_PREFIX).lower()
    )
    page = query.number("page", 1, least=1)
    return {
        "count": len(names),
        "page": page,
        "pages": max(-(-len(names) // SINKS_MAX), 1),
        "sinks": [_sink(cluster, every[name]) for name in names[(page - 1) * SINKS_MAX : page * SINKS_MAX]],
    }


def _sink(cluster: Cluster, topic: Topic) -> Answer:
    partitions = partitions_of(topic)[:LANES_MAX]
    usable = led(cluster, partitions)
    first = offsets_of(cluster, usable, EARLIEST)
    stable = offsets_of(cluster, usable, LATEST, Isolation.READ_COMMITTED)
    lanes = []
    for where in partitions:
        if where in usable:
            lanes.append(_lane(cluster, topic, where, max(first[where], stable[where] - TAIL_OFFSETS), stable[where]))
        else:
            lanes.append(_without(where, "it has no leader now"))
    return {
        "topic": topic.name,
        "sink": topic.name.removeprefix(PROGRESS_PREFIX),
        "lane_count": topic.partitions,
        "lanes": lanes,
    }


def _lane(cluster: Cluster, topic: Topic, where: TopicPartition, at: int, stable: int) -> Answer:
    value: bytes | None = None
    written_ms = offset = -1
    try:
        while at < stable:
            before = at
            _, rows, at = read_from(cluster, topic, where, at, stable)
            for marker_offset, (batch, record, is_aborted) in rows:
                if not batch.is_control and not is_aborted and marker_offset < stable:
                    value, written_ms, offset = record.value, record.timestamp_ms, marker_offset
            if at == before:
                break
    except AuthenticationFailed as error:
        return _without(where, str(error))
    if value is None:
        return _without(where, "it has written nothing yet")
    try:
        return {"lane": where.partition, "trouble": None, "offset": offset, "at_ms": written_ms, **_marker(value)}
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return _without(where, f"the record at offset {offset} is no marker")


def _marker(value: bytes) -> Answer:
    marker = json.loads(value)
    newest = marker["written"][-1]
    return {
        "sink_id": str(marker["sinkId"]),
        "order": str(marker["order"]),
        "query_id": str(newest["queryId"]),
        "batch_id": int(newest["batchId"]),
        "rows": int(newest["rows"]),
    }


def _without(where: TopicPartition, trouble: str) -> Answer:
    return {"lane": where.partition, "trouble": trouble}
