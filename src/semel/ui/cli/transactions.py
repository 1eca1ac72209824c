"""`semel transactions`: shows open transactions, with age and partitions, and aborts one whose producer is gone.

It works with semel and with Apache Kafka. `abort` claims the transactional id, as a new instance of the producer would:
the broker fences the former producer and aborts its transaction, so a zombie that wakes up is refused.
"""

import argparse
import itertools
import time
from typing import Final

from semel.client import transactional_ids
from semel.client.cluster import TRANSACTION, Cluster
from semel.client.transactional_ids import OPEN, Described
from semel.ui.cli.cluster import cluster_actions, cluster_at, coordinator_of
from semel.ui.cli.display import is_confirmed, printable, time_shown
from semel.ui.cli.errors import Failure

EXAMPLE: Final = """  semel transactions list --state Ongoing
  semel transactions describe billing-1
  semel transactions abort billing-1"""

_STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")


def configure(parser: argparse.ArgumentParser) -> None:
    action = cluster_actions(parser, "id", "the transactional id")
    listing = action("list", "show every transactional id, with its producer and the state of its transaction")
    listing.add_argument("--state", choices=_STATES, action="append", help="only these; may be given several times")
    action("describe", "show one transactional id, with the partitions of its open transaction")
    abort = action("abort", "abort the open transaction of a transactional id, and fence its producer")
    abort.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with cluster_at(options) as cluster:
        if options.action == "list":
            _list(cluster, options.state or [])
        elif options.action == "describe":
            _describe(cluster, options.id)
        else:
            _abort(cluster, options.id, options.yes)
    return 0


def _list(cluster: Cluster, states: list[str]) -> None:
    rows = [("TRANSACTIONAL ID", "PRODUCER", "STATE")]
    for ids in transactional_ids.listed(cluster, states).values():
        rows += [(printable(one.name), str(one.producer_id), one.state) for one in ids]
    width = max(len(name) for name, _, _ in rows)
    for name, producer_id, state in rows:
        print(f"{name:{width}}  {producer_id:>10}  {state}")


def _described(cluster: Cluster, transactional_id: str) -> Described:
    coordinator = coordinator_of(cluster, transactional_id, TRANSACTION)
    for described in transactional_ids.described(cluster, coordinator, [transactional_id]):
        return described
    raise Failure(
        f"there is no transactional id {transactional_id!r}; the broker forgets an unused one after "
        f"transactional_id_expiration_ms, and logs event=transactional_ids_forgotten"
    )


def _describe(cluster: Cluster, transactional_id: str) -> None:
    described = _described(cluster, transactional_id)
    print(f"transactional id {printable(transactional_id)}")
    print(f"  producer {described.producer_id}  epoch {described.producer_epoch}")
    print(f"  state {described.state}  timeout {described.timeout_ms} ms")
    began_ms = described.began_at_ms
    if described.state == OPEN and began_ms is not None:
        age_seconds = max(time.time() - began_ms / 1000, 0)
        print(f"  open since {time_shown(began_ms)}, for {age_seconds:.0f} s")
    for topic, partitions in itertools.groupby(described.partitions, key=lambda where: where.topic):
        print(f"  topic {topic}  partitions {', '.join(str(where.partition) for where in partitions)}")


def _abort(cluster: Cluster, transactional_id: str, sure: bool) -> None:
    described = _described(cluster, transactional_id)
    if described.state != OPEN:
        raise Failure(f"nothing is open under {transactional_id!r}: its state is {described.state}")
    who = f"producer {described.producer_id} in epoch {described.producer_epoch}"
    unasked = "the producer will be fenced, and its records will never be visible; pass --yes"
    if not sure and not is_confirmed(f"Abort the transaction of {transactional_id}, and fence {who}?", unasked):
        print("left open")
        return
    claimed = transactional_ids.claim(cluster, transactional_id)
    print(
        f"aborted; producer {described.producer_id} is fenced in epoch {described.producer_epoch}, "
        f"the id goes on with producer {claimed.producer_id} in epoch {claimed.producer_epoch}"
    )
