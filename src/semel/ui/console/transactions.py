"""Open transactions: since when, in which partitions, and how far each holds back the last stable offset; and aborting
one.

Readers of committed records stop at the last stable offset of a partition, which is where its oldest open transaction
begins. So only one of the open transactions in a partition holds readers back, and the page names it.
"""

import contextlib
from typing import Any, Final

from semel.client import admin, transactional_ids
from semel.client.cluster import TRANSACTION, Cluster
from semel.client.errors import AuthenticationFailed
from semel.client.lag import Standing, lags
from semel.client.places import LATEST, Isolation, TopicPartition
from semel.client.topics import offsets_of
from semel.client.transactional_ids import OPEN, Described
from semel.ui.cli.display import counted
from semel.ui.console.commands import command
from semel.ui.console.groups import committed_of, lag_shown, members_of, some_of_list
from semel.ui.console.http import PageRefused
from semel.ui.console.plans import Plan
from semel.ui.console.query import Query
from semel.ui.console.topics import led

# How many open transactions are asked about, and how many of the oldest are shown.
ASKED_MAX: Final = 1_000
SHOWN_MAX: Final = 50
# Only the first partitions of a transaction are shown.
PARTITIONS_MAX: Final = 20
# Each group takes a request; groups after the first ones by name are not asked about.
GROUPS_ASKED_MAX: Final = 100
READERS_MAX: Final = 10
_NOTHING_OPEN: Final = -1

Answer = dict[str, Any]


def open_transactions(cluster: Cluster, query: Query) -> Answer:
    """The oldest open transactions whose ids contain a text, and how many there are."""
    wanted = query.text("find", "").lower()
    ongoing: list[Described] = []
    count = 0
    for coordinator, ids in transactional_ids.listed(cluster, [OPEN]).items():
        names = [one.name for one in ids if wanted in one.name.lower()]
        count += len(names)
        left = names[: ASKED_MAX - len(ongoing)]
        if left:
            described = transactional_ids.described(cluster, coordinator, left)
            # A transaction may have ended since the list was made.
            ongoing += [one for one in described if one.state == OPEN]
    # Transactions of the same millisecond are sorted by producer, so that every reload shows the same order.
    ongoing.sort(key=lambda one: (one.began_at_ms is None, one.began_at_ms, one.producer_id))
    shown = ongoing[:SHOWN_MAX]
    places = _places(cluster, shown)
    held = {where for one in shown for where in one.partitions[:PARTITIONS_MAX] if _holds(one, where, places)}
    groups, readers = _readers(cluster, held, places.stable) if held else (None, {})
    return {
        "count": count,
        # How many at most were asked since when they are open; the oldest may be among the others.
        "asked_max": ASKED_MAX,
        # How many groups there are and how many were asked, or None if no transaction holds anybody back.
        "groups": groups,
        "transactions": [
            {
                "id": one.name,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "began_ms": one.began_at_ms,
                "timeout_ms": one.timeout_ms,
                "command": command("transactions", "abort", name=one.name),
                "partition_count": len(one.partitions),
                "partitions": [_place(one, where, places, readers) for where in one.partitions[:PARTITIONS_MAX]],
            }
            for one in shown
        ],
    }


class _Places:
    """The offsets of each partition that an open transaction has written to."""

    def __init__(self) -> None:
        self.stable: dict[TopicPartition, int] = {}
        self.end: dict[TopicPartition, int] = {}
        # By partition and producer id, where the open transaction begins.
        self.begun: dict[tuple[TopicPartition, int], int] = {}


def _places(cluster: Cluster, shown: list[Described]) -> _Places:
    places = _Places()
    touched = dict.fromkeys(where for one in shown for where in one.partitions[:PARTITIONS_MAX])
    usable = led(cluster, touched)
    places.stable = offsets_of(cluster, usable, LATEST, Isolation.READ_COMMITTED)
    places.end = offsets_of(cluster, usable, LATEST)
    for where in usable:
        # A user who may see transactions may lack the right to read their topics.
        with contextlib.suppress(AuthenticationFailed):
            for producer in admin.producers_of(cluster, where):
                places.begun[where, producer.producer_id] = producer.current_txn_start_offset
    return places


def _holds(one: Described, where: TopicPartition, places: _Places) -> bool:
    """Whether this transaction is the one for which readers of committed records wait in this partition."""
    begun = places.begun.get((where, one.producer_id), _NOTHING_OPEN)
    return begun != _NOTHING_OPEN and begun == places.stable.get(where)


def _readers(
    cluster: Cluster, held: set[TopicPartition], stable: dict[TopicPartition, int]
) -> tuple[Answer, dict[TopicPartition, list[Answer]]]:
    """The groups that read these partitions, and the lag of each up to the last stable offset, where it has to wait;
    before them, of how many groups this tells. A group that has committed nothing yet waits as well.
    """
    count, asked = some_of_list(cluster, "", 0, GROUPS_ASKED_MAX)
    places: list[tuple[str, TopicPartition, int | None]] = []
    for group in asked:
        committed = committed_of(cluster, group) or {}
        reads = {one for member in members_of(cluster, group) for one in member.partitions}
        places += [(group.name, where, committed.get(where)) for where in sorted({*committed, *reads} & held)]
    found = lags(cluster, [Standing(where, offset) for _, where, offset in places if offset is not None], stable)
    readers: dict[TopicPartition, list[Answer]] = {}
    for name, where, offset in places:
        lag = None if offset is None else found.get(Standing(where, offset))
        readers.setdefault(where, []).append({"group": name, **lag_shown(lag)})
    return {"count": count, "asked": len(asked)}, readers


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
        "reader_count": len(readers.get(where, [])) if holds else 0,
    }


def abort(cluster: Cluster, query: Query) -> Plan:
    """Abort the open transaction of an id."""
    name = query.name("id")
    coordinator = cluster.coordinator(name, TRANSACTION)
    described = transactional_ids.described(cluster, coordinator, [name])
    if not described or described[0].state != OPEN:
        raise PageRefused(400, f"nothing is open under {name!r} any more")
    one = described[0]

    def do() -> str:
        claimed = transactional_ids.claim(cluster, name)
        return (
            f"The transaction of {name} is aborted. Producer {one.producer_id} is fenced in epoch "
            f"{one.producer_epoch}; the id goes on with producer {claimed.producer_id} in epoch "
            f"{claimed.producer_epoch}."
        )

    return Plan(
        do,
        title=f"Abort the transaction of {name}?",
        button="Abort it",
        says=(
            f"Producer {one.producer_id} is fenced in epoch {one.producer_epoch}: if it still lives, its next request "
            "is refused.",
            f"What it wrote in this transaction, in {counted(len(one.partitions), 'partition')}, is never seen by "
            "readers of committed records. This cannot be undone.",
        ),
        seen=[one.producer_id, one.producer_epoch, one.began_at_ms],
        command=command("transactions", "abort", name=name),
    )
