"""What share groups have in flight, for an operator's tools: how often records were delivered, and who holds them.
Kafka's protocol has no request for it. This file must never change anything, and answers a bounded number of share
partitions.
"""

import json
from collections import Counter
from typing import Any, Final

from semel.log.broker.broker import Broker
from semel.log.broker.share_sessions import ShareSession
from semel.log.core.groups.share_partition import ACQUIRED, AVAILABLE, SharePartition

# The share partitions in one answer, the runs after which no further one is looked at, and the holders of each: some
# milliseconds.
PARTITIONS_MAX: Final = 50
RUNS_MAX: Final = 10_000
HOLDERS_MAX: Final = 20


def shared_records(broker: Broker, group: str, first: int) -> bytes:
    """The share partitions of a group from the place `first` on, as JSON; Refused if there is no such group."""
    machine, rows = broker.share_groups.existing(group), []
    places = sorted(machine.partitions(), key=lambda place: place[0])
    runs = 0
    for name, partition in places[first : first + PARTITIONS_MAX]:
        if runs > RUNS_MAX:
            break
        runs += partition.run_count
        topic = broker.log.state.catalog.numbered(name.number)
        rows.append({"topic": None if topic is None else topic.name, "partition": name.partition, **_told(partition)})
    next_first = first + len(rows) if first + len(rows) < len(places) else None
    return json.dumps({"group": group, "partitions": rows, "next": next_first}).encode()


def _told(partition: SharePartition) -> dict[str, Any]:
    counts, deliveries, holders = Counter[int](), Counter[int](), Counter[str]()
    for first, last, state in partition.runs():
        counts[state.kind] += last - first + 1
        if state.kind in (ACQUIRED, AVAILABLE):
            deliveries[state.deliveries] += last - first + 1
        if isinstance(state.holder, ShareSession):
            holders[state.holder.name.member_id] += last - first + 1
    return {
        "start": partition.start,
        "end": partition.end,
        "held": counts[ACQUIRED],
        "waiting": counts[AVAILABLE],
        "deliveries": sorted(deliveries.items()),
        "holders": holders.most_common(HOLDERS_MAX),
    }
