"""`semel transactions`: the open transactions, since when and where, and a way to abort one whose producer is gone.

It works against semel and against Apache Kafka. `abort` claims the transactional id, as a new instance of the producer
would: the broker fences the producer that has it and aborts its transaction, so a zombie that wakes up is refused.
"""

import argparse
import sys
import time
from datetime import datetime
from typing import Any, Final

from semel.cli.cluster import add_bootstrap, cluster_at, coordinator_of
from semel.cli.display import printable, time_shown
from semel.cli.errors import Failure
from semel.cli.subcommands import add_subcommand
from semel.client import codes
from semel.client.cluster import TRANSACTION, Cluster
from semel.wire.errors import ErrorCode
from semel.wire.versions import DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID, LIST_TRANSACTIONS

EXAMPLE: Final = """  semel transactions list --state Ongoing
  semel transactions describe billing-1
  semel transactions abort billing-1"""

_STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
_OPEN: Final = "Ongoing"
_NOBODY: Final = -1
# The timeout with which the id is claimed; the next producer that claims it brings its own.
_TIMEOUT_MS: Final = 60_000
# Apache Kafka answers that the abort is under way, and has to be asked again.
_UNDER_WAY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_ABORT_SECONDS_MAX: Final = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        if name != "list":
            own.add_argument("id", metavar="ID", help="the transactional id")
        add_bootstrap(own)
        return own

    listing = action("list", "show every transactional id, whose it is and how its transaction stands")
    listing.add_argument("--state", choices=_STATES, action="append", help="only these; may be given several times")
    action("describe", "show one transactional id, with the partitions of its open transaction")
    abort = action("abort", "abort what is open under a transactional id, and fence the producer that has it")
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
    for broker in cluster.brokers():
        answer = cluster.ask(broker, LIST_TRANSACTIONS, state_filters=states, producer_id_filters=[])
        codes.check_coordinator("the list of transactions", answer.error_code, right="Describe on transactional ids")
        rows += [
            (printable(state.transactional_id), str(state.producer_id), state.transaction_state)
            for state in _sorted(answer)
        ]
    width = max(len(name) for name, _, _ in rows)
    for name, producer_id, state in rows:
        print(f"{name:{width}}  {producer_id:>10}  {state}")


def _sorted(answer: Any) -> list[Any]:
    return sorted(answer.transaction_states, key=lambda state: str(state.transactional_id))


def _described(cluster: Cluster, transactional_id: str) -> Any:
    coordinator = coordinator_of(cluster, transactional_id, TRANSACTION)
    answer = cluster.ask(coordinator, DESCRIBE_TRANSACTIONS, transactional_ids=[transactional_id])
    (described,) = answer.transaction_states
    if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Failure(
            f"there is no transactional id {transactional_id!r}; one that nobody uses is forgotten after "
            "transactional_id_expiration_ms, and event=transactional_ids_forgotten says when"
        )
    what = f"transactional id {transactional_id!r}"
    codes.check_coordinator(what, described.error_code, right=f"Describe on {what}")
    return described


def _describe(cluster: Cluster, transactional_id: str) -> None:
    described = _described(cluster, transactional_id)
    print(f"transactional id {printable(transactional_id)}")
    print(f"  producer {described.producer_id}  epoch {described.producer_epoch}")
    print(f"  state {described.transaction_state}  timeout {_milliseconds(described.transaction_timeout)} ms")
    began_ms = _milliseconds(described.transaction_start_time)
    if described.transaction_state == _OPEN and began_ms >= 0:
        age_seconds = max(time.time() - began_ms / 1000, 0)
        print(f"  open since {time_shown(began_ms)}, for {age_seconds:.0f} s")
    for topic in sorted(described.topics, key=lambda topic: str(topic.topic)):
        print(f"  topic {topic.topic}  partitions {', '.join(map(str, sorted(topic.partitions)))}")


def _milliseconds(value: Any) -> int:
    """A duration or a time of day in kio's types, or a number, as milliseconds; -1 for none."""
    if value is None:
        return _NOBODY
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if hasattr(value, "total_seconds"):
        return round(float(value.total_seconds()) * 1000)
    return int(value)


def _abort(cluster: Cluster, transactional_id: str, sure: bool) -> None:
    described = _described(cluster, transactional_id)
    if described.transaction_state != _OPEN:
        raise Failure(f"nothing is open under {transactional_id!r}: its state is {described.transaction_state}")
    if not sure:
        if not sys.stdin.isatty():
            raise Failure("the producer will be fenced and its records never be seen; say --yes")
        print(
            f"Abort the transaction of {transactional_id}, and fence producer {described.producer_id} "
            f"in epoch {described.producer_epoch}? [y/N] ",
            end="",
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("left open")
            return
    claimed = _claim(cluster, transactional_id)
    print(
        f"aborted; producer {described.producer_id} is fenced in epoch {described.producer_epoch}, "
        f"the id goes on with producer {claimed.producer_id} in epoch {claimed.producer_epoch}"
    )


def _claim(cluster: Cluster, transactional_id: str) -> Any:
    deadline = time.monotonic() + _ABORT_SECONDS_MAX
    while True:
        answer = cluster.ask(
            coordinator_of(cluster, transactional_id, TRANSACTION),
            INIT_PRODUCER_ID,
            transactional_id=transactional_id,
            transaction_timeout=_TIMEOUT_MS,
            producer_id=_NOBODY,
            producer_epoch=_NOBODY,
        )
        if not answer.error_code:
            return answer
        if answer.error_code not in _UNDER_WAY or time.monotonic() >= deadline:
            what = f"transactional id {transactional_id!r}"
            raise codes.refusal(what, answer.error_code, right=f"Write on {what}")
        time.sleep(0.1)
