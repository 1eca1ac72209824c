"""The first page: what holds readers back now, and which groups have lag.

It asks little, and does not list topics: a cluster takes seconds to list ten thousand.
"""

from typing import Any, Final

from semel.client import transactional_ids
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker
from semel.client.transactional_ids import OPEN
from semel.ui.console import groups
from semel.ui.console.query import Query

GROUPS_SHOWN: Final = 5
# Of how many open transactions of each broker the oldest is searched.
TRANSACTIONS_ASKED_MAX: Final = 100

Answer = dict[str, Any]


def now(cluster: Cluster, query: Query) -> Answer:
    """The figures of the first page; None for figures that the console's login may not see."""
    return {
        "brokers": [f"{host}:{port}" for host, port in cluster.brokers()],
        "transactions": _transactions(cluster),
        "groups": _groups(cluster, query),
    }


def _transactions(cluster: Cluster) -> Answer | None:
    try:
        count = looked_at = 0
        oldest: Answer | None = None
        for coordinator, ids in transactional_ids.listed(cluster, [OPEN]).items():
            count += len(ids)
            names = [one.name for one in ids[:TRANSACTIONS_ASKED_MAX]]
            looked_at += len(names)
            for one in transactional_ids.described(cluster, coordinator, names):
                is_older = oldest is None or (one.began_at_ms or 0) < oldest["began_ms"]
                if one.state == OPEN and one.began_at_ms is not None and is_older:
                    oldest = {"id": one.name, "began_ms": one.began_at_ms, "partitions": len(one.partitions)}
        return {"count": count, "looked_at": looked_at, "oldest": oldest}
    except (AuthenticationFailed, RefusedByBroker):
        return None


def _groups(cluster: Cluster, query: Query) -> Answer | None:
    try:
        page = groups.every_group(cluster, Query({}))
    except (AuthenticationFailed, RefusedByBroker):
        return None
    behind = sorted((one for one in page["groups"] if one["lag"]), key=lambda one: -one["lag"])
    rows = [{name: one[name] for name in ("name", "lag", "lag_is_exact", "state")} for one in behind[:GROUPS_SHOWN]]
    return {"count": page["count"], "looked_at": len(page["groups"]), "behind": len(behind), "most": rows}
