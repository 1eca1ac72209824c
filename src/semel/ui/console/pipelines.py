"""Pipelines: semel's Spark sinks into the log, from the markers that their lanes leave in the progress topics; and its
Spark queries that read the log, from the groups in which they commit their progress.

A marker is a record that says which batches its lane has written, in the same transaction as their rows. This page
reads the last committed marker of each lane, only as a reader and without a fence: a lane may be further by now. A
record that is no marker is reported, and must never hide the other lanes.
"""

import json
from typing import Any, Final

from semel.client import groups, transactional_ids
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker
from semel.client.groups import QUERY_NOTE
from semel.client.lag import Standing, lags, total
from semel.client.places import EARLIEST, LATEST, Isolation, Topic, TopicPartition
from semel.client.topics import offsets_of, partitions_of
from semel.client.transactional_ids import OPEN
from semel.ui.console.groups import lag_shown, some_of_list
from semel.ui.console.query import Query
from semel.ui.console.records import read_from
from semel.ui.console.topics import led

# The prefix of the sinks' progress topics, unless the user has named another topic.
PROGRESS_PREFIX: Final = "semel-progress-"
# The prefix of the transactional ids of their lanes.
FENCE_PREFIX: Final = "semel-lane-"
# The size of a page, which needs a request for each lane.
SINKS_MAX: Final = 10
LANES_MAX: Final = 50
# Each group takes a request; groups after the first ones by name are not asked about.
GROUPS_ASKED_MAX: Final = 100
# How far before the end a marker is searched: only the ends of aborted transactions come after it.
TAIL_OFFSETS: Final = 64

Answer = dict[str, Any]


def every_sink(cluster: Cluster, query: Query) -> Answer:
    """One page of the sinks whose names contain a text, each with its lanes."""
    wanted = query.text("find", "").strip().lower()
    every = cluster.every_topic()
    names = sorted(
        name
        for name in every
        if name.startswith(PROGRESS_PREFIX) and wanted in name.removeprefix(PROGRESS_PREFIX).lower()
    )
    shown, about = query.page_of(names, SINKS_MAX)
    queries, groups_asked = _queries(cluster, wanted)
    return {
        **about,
        "sinks": _with_fences(cluster, [_sink(cluster, every[name]) for name in shown]),
        "queries": queries,
        # Of how many groups this tells; None if the console's login may not list them.
        "groups": groups_asked,
    }


def _queries(cluster: Cluster, wanted: str) -> tuple[list[Answer], Answer | None]:
    """The queries that commit their progress, each in its own group without members; and how many groups there are, and
    were asked.
    """
    read: dict[str, dict[TopicPartition, int]] = {}
    try:
        count, asked = some_of_list(cluster, wanted, 0, GROUPS_ASKED_MAX)
    except (AuthenticationFailed, RefusedByBroker):
        return [], None
    for group in asked:
        try:
            committed = groups.committed(cluster, group.coordinator, group.name)
        except (AuthenticationFailed, RefusedByBroker):
            continue
        places = {where: one.offset for where, one in committed.items() if one.note == QUERY_NOTE}
        if not places:
            continue
        read[group.name] = places
    standings = [Standing(*place) for places in read.values() for place in places.items()]
    usable = led(cluster, {one.where for one in standings})
    found = lags(cluster, standings, offsets_of(cluster, usable, LATEST, Isolation.READ_COMMITTED))
    queries = []
    for name, places in read.items():
        lag = total(found[one] for one in map(Standing._make, places.items()) if one in found)
        topics = sorted({where.topic for where in places})
        queries.append({"group": name, "topics": topics, "partitions": len(places), **lag_shown(lag)})
    return queries, {"count": count, "asked": len(asked)}


def _with_fences(cluster: Cluster, sinks: list[Answer]) -> list[Answer]:
    """Add to each lane with a marker how many attempts to write batches there were: each claims the lane's fence, and
    fences the attempt before. The first one gets epoch 0, and each later one an epoch that is higher by one; on Apache
    Kafka by two if the attempt before it had left its transaction open.
    """
    lanes = {
        f"{FENCE_PREFIX}{lane['sink_id']}-{lane['lane']}": lane
        for sink in sinks
        for lane in sink["lanes"]
        if lane["trouble"] is None
    }
    try:
        listed = transactional_ids.listed(cluster) if lanes else {}
        for coordinator, ids in listed.items():
            names = [one.name for one in ids if one.name in lanes]
            for one in transactional_ids.described(cluster, coordinator, names) if names else ():
                lanes[one.name]["attempts"] = one.producer_epoch + 1
                lanes[one.name]["writes_now"] = one.state == OPEN
    except (AuthenticationFailed, RefusedByBroker):
        pass
    return sinks


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
