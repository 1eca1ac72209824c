"""`semel top`: a cluster in a terminal, as it is now: which topics grow, which groups lag, what holds readers back.

It works with semel and with Apache Kafka. With `--store` it shows the brokers of a store as well, also while none of
them answers. Where the output is no terminal, it is written as it comes, so that it can be kept.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from semel.client.cluster import Cluster
from semel.client.errors import LogError
from semel.client.topics import partitions_of, stable_and_ends
from semel.log.status import BrokenHistory
from semel.log.stores import StoreError
from semel.ui.cli.cluster import add_bootstrap, client_settings
from semel.ui.cli.display import counted, print_table, printable, time_shown, while_somebody_reads
from semel.ui.cli.errors import Failure
from semel.ui.cli.status import brokers_of
from semel.ui.cli.subcommands import positive, seconds

EXAMPLE: Final = """  semel top
  semel top --store s3://bucket/log
  semel top --times 1 > now.txt"""

# The lines of a terminal that the topics do not take, with the most groups that are shown.
_OTHER_LINES: Final = 20
_TOPICS_MIN: Final = 5
_CLEAR: Final = "\x1b[H\x1b[2J"


class Growth(NamedTuple):
    """How far a topic has come: its partitions, the sum of their ends, and how many offsets are held back."""

    partitions: int
    end: int
    held: int


class Sight(NamedTuple):
    """What was seen at a time, in seconds of a clock that only goes forward."""

    at: float
    topics: Mapping[str, Growth]
    # As the console's first page has it.
    overview: Mapping[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument("--store", metavar="URL", help="show the brokers of this store and how far behind they are")
    parser.add_argument("--every", type=seconds, default=2.0, metavar="SECONDS", help="how often it looks (2)")
    parser.add_argument("--times", type=positive, metavar="N", help="show so many and end (until Ctrl-C)")


def run(options: argparse.Namespace) -> int:
    settings = client_settings(options)
    shown = 0
    now: Sight | None = None
    with while_somebody_reads():
        while shown != options.times:
            before = now
            brokers = [] if options.store is None else _brokers_of(options.store)
            try:
                with Cluster(settings) as cluster:
                    now = _look(cluster)
            except LogError as error:
                if options.store is None:
                    raise Failure(str(error)) from None
                now = None
                _show([f"no broker answers: {error}"], brokers, [])
                shown += 1
            # The first look has nothing to compare with.
            if before is not None and now is not None:
                tables = growing(before, now, _topics_max()), lagging(now), _transactions(now)
                _show(_heading(now), brokers, tables)
                shown += 1
            if shown != options.times:
                time.sleep(options.every)
    return 0 if now is not None else 1


def _brokers_of(url: str) -> list[str]:
    try:
        return brokers_of(url)
    except (StoreError, BrokenHistory) as error:
        raise Failure(str(error)) from None


def _look(cluster: Cluster) -> Sight:
    from semel.ui.console import overview
    from semel.ui.console.query import Query

    topics = {}
    for name, topic in cluster.every_topic().items():
        stable, ends = stable_and_ends(cluster, partitions_of(topic))
        end = sum(ends.values())
        topics[name] = Growth(topic.partitions, end, end - sum(stable.values()))
    return Sight(time.monotonic(), topics, overview.now(cluster, Query({})))


def _show(heading: Sequence[str], brokers: Sequence[str], tables: Iterable[Sequence[Sequence[str]]]) -> None:
    print(_CLEAR if sys.stdout.isatty() else "", end="")
    for line in (*heading, *brokers):
        print(printable(line))
    for table in tables:
        print()
        print_table(table, right=True)
    sys.stdout.flush()


def _heading(now: Sight) -> list[str]:
    brokers = now.overview["brokers"]
    return [f"{time_shown(int(time.time() * 1000))}  {counted(len(brokers), 'broker')}: {', '.join(brokers)}"]


def _topics_max() -> int:
    """As many as the terminal has place for; all of them where there is none."""
    if not sys.stdout.isatty():
        return sys.maxsize
    return max(shutil.get_terminal_size().lines - _OTHER_LINES, _TOPICS_MIN)


def growing(before: Sight, now: Sight, rows_max: int) -> list[Sequence[str]]:
    """The topics, those that grow fastest first. One that was recreated has grown from its beginning."""
    passed = now.at - before.at
    grown = {}
    for name, topic in now.topics.items():
        last = before.topics.get(name)
        grown[name] = topic.end - (last.end if last is not None and last.end <= topic.end else 0)
    names = sorted(grown, key=lambda name: (-grown[name], name))
    rows: list[Sequence[str]] = [("TOPIC", "PARTITIONS", "OFFSETS/S", "END", "HELD")]
    for name in names[:rows_max]:
        topic = now.topics[name]
        rows.append((name, str(topic.partitions), f"{grown[name] / passed:.0f}", str(topic.end), str(topic.held)))
    if len(names) > rows_max:
        rows.append((f"and {len(names) - rows_max} more", "", "", "", ""))
    return rows


def lagging(now: Sight) -> list[Sequence[str]]:
    """The groups with the most lag."""
    groups = now.overview["groups"]
    if groups is None:
        return [("this login may not see the groups",)]
    head = (f"GROUP ({groups['behind']} of {groups['looked_at']} lag)", "STATE", "LAG")
    return [head, *((one["name"], one["state"], _lag_shown(one)) for one in groups["most"])]


def _lag_shown(group: Mapping[str, Any]) -> str:
    return f"{'' if group['lag_is_exact'] else '<='}{group['lag']}"


def _transactions(now: Sight) -> list[Sequence[str]]:
    transactions = now.overview["transactions"]
    if transactions is None:
        return [("this login may not see the transactions",)]
    oldest = transactions["oldest"]
    rows: list[Sequence[str]] = [(f"TRANSACTION ({transactions['count']} open)", "PARTITIONS", "OPEN FOR")]
    if oldest is not None:
        age = max(time.time() - oldest["began_ms"] / 1000, 0)
        rows.append((f"{oldest['id']} (the oldest)", str(oldest["partitions"]), f"{age:.0f} s"))
    return rows
