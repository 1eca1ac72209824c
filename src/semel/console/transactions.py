"""Open transactions: since when, where, and how far back each holds the last stable offset; and ending one.

Readers of committed records stop at the last stable offset of a partition, which is where its oldest open transaction
begins. So of all that are open in a partition one holds the readers back, and the page names it.
"""

import contextlib
from typing import Any, Final

from semel.client import admin, transactional_ids
from semel.client.cluster import TRANSACTION, Cluster
from semel.client.errors import AuthenticationFailed, LogError
from semel.client.places import LATEST, Isolation, TopicPartition
from semel.client.topics import offsets_of
from semel.client.transactional_ids import OPEN, Described
from semel.console.groups import committed_of, some_of_list
from semel.console.http import PageRefused
from semel.console.query import Query
from semel.console.topics import led

# How many of the open ones are asked about, and how many of the oldest are shown.
ASKED_MAX: Final = 1_000
SHOWN_MAX: Final = 50
# A transaction over more partitions than this is shown with its first ones.
PARTITIONS_MAX: Final = 20
# Each group is a request; those that come later in the order of names are not looked at.
GROUPS_ASKED_MAX: Final = 100
READERS_MAX: Final = 10
_NOTHING_OPEN: Final = -1

Answer = dict[str, Any]


def open_transactions(cluster: Cluster, query: Query) -> Answer:
    """The oldest open transactions in whose ids a text is found, and how many more there are."""
    wanted = query.text("find", "").lower()
    ongoing: list[Described] = []
    count = 0
    for coordinator, ids in transactional_ids.listed(cluster, [OPEN]).items():
        names = [one.name for one in ids if wanted in one.name.lower()]
        count += len(names)
        left = names[: ASKED_MAX - len(ongoing)]
        if left:
            described = transactional_ids.described(cluster, coordinator, left)
            # One may have ended since the list was made.
            ongoing += [one for one in described if one.state == OPEN]
    # Those of one millisecond by producer, so that a page that is asked for again shows them in the same order.
    ongoing.sort(key=lambda one: (one.began_at_ms is None, one.began_at_ms, one.producer_id))
    shown = ongoing[:SHOWN_MAX]
    places = _places(cluster, shown)
    held = {where for one in shown for where in one.partitions[:PARTITIONS_MAX] if _holds(one, where, places)}
    readers = _readers(cluster, held, places.stable) if held else {}
    return {
        "count": count,
        "asked": len(ongoing),
        "transactions": [
            {
                "id": one.name,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "began_ms": one.began_at_ms,
                "timeout_ms": one.timeout_ms,
                "partition_count": len(one.partitions),
                "partitions": [_place(one, where, places, readers) for where in one.partitions[:PARTITIONS_MAX]],
            }
            for one in shown
        ],
    }


class _Places:
    """What is known of each partition that some open transaction has written to."""

    def __init__(self) -> None:
        self.stable: dict[TopicPartition, int] = {}
        self.end: dict[TopicPartition, int] = {}
        # Where the open transaction of a producer begins.
        self.begun: dict[tuple[TopicPartition, int], int] = {}


def _places(cluster: Cluster, shown: list[Described]) -> _Places:
    places = _Places()
    touched = dict.fromkeys(where for one in shown for where in one.partitions[:PARTITIONS_MAX])
    usable = led(cluster, touched)
    places.stable = offsets_of(cluster, usable, LATEST, Isolation.READ_COMMITTED)
    places.end = offsets_of(cluster, usable, LATEST)
    for where in usable:
        # Not every user who may see transactions may read what they write.
        with contextlib.suppress(AuthenticationFailed):
            for producer in admin.producers_of(cluster, where):
                places.begun[where, producer.producer_id] = producer.current_txn_start_offset
    return places


def _holds(one: Described, where: TopicPartition, places: _Places) -> bool:
    """Whether readers of committed records wait in this partition for this very transaction."""
    begun = places.begun.get((where, one.producer_id), _NOTHING_OPEN)
    return begun != _NOTHING_OPEN and begun == places.stable.get(where)


def _readers(
    cluster: Cluster, held: set[TopicPartition], stable: dict[TopicPartition, int]
) -> dict[TopicPartition, list[Answer]]:
    """The groups that read these partitions, and how far each is from the last stable offset, at which it waits."""
    readers: dict[TopicPartition, list[Answer]] = {}
    _, asked = some_of_list(cluster, "", 0, GROUPS_ASKED_MAX)
    for group in asked:
        for where, offset in (committed_of(cluster, group) or {}).items():
            if where in held:
                readers.setdefault(where, []).append({"group": group.name, "behind": max(stable[where] - offset, 0)})
    return readers


def _place(
    one: Described, where: TopicPartition, places: _Places, readers: dict[TopicPartition, list[Answer]]
) -> Answer:
    begun = places.begun.get((where, one.producer_id), _NOTHING_OPEN)
    holds = _holds(one, where, places)
    return {
        "topic": where.topic,
        "partition": where.partition,
        "begun": None if begun == _NOTHING_OPEN else begun,
        "stable": places.stable.get(where),
        "end": places.end.get(where),
        "holds": places.end[where] - begun if holds else 0,
        "readers": readers.get(where, [])[:READERS_MAX] if holds else [],
    }


def abort(cluster: Cluster, query: Query) -> str:
    """Abort what is open under an id, if it is still of the producer that the page showed."""
    name = query.text("id")
    coordinator = cluster.coordinator(name, TRANSACTION)
    described = transactional_ids.described(cluster, coordinator, [name])
    if not described or described[0].state != OPEN:
        raise PageRefused(400, f"nothing is open under {name!r} any more")
    one = described[0]
    if (one.producer_id, one.producer_epoch) != (query.number("producer_id"), query.number("producer_epoch")):
        raise PageRefused(400, f"another producer has {name!r} now: look again before you abort its transaction")
    try:
        claimed = transactional_ids.claim(cluster, name)
    except LogError as error:
        raise PageRefused(502, f"nobody knows whether the transaction was aborted: {error}") from None
    return (
        f"The transaction of {name} is aborted. Producer {one.producer_id} is fenced in epoch {one.producer_epoch}; "
        f"the id goes on with producer {claimed.producer_id} in epoch {claimed.producer_epoch}."
    )
