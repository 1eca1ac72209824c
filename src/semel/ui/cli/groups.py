"""`semel groups`: shows the offsets and the lag of consumer groups and of share groups, and resets them.

It works with semel and with Apache Kafka. `reset` only shows what it would do, and does it with `--execute`, because a
mistake cannot be undone once a group has read or skipped records. It must never reset a group that has members; the
broker refuses that.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from semel.client import groups
from semel.client.cluster import GROUP, Cluster
from semel.client.groups import Committed, Member, Shared
from semel.client.lag import Lag, Standing, lags
from semel.client.places import TopicPartition
from semel.client.settings import Address
from semel.client.topics import partitions_of, stable_and_ends, topic_of
from semel.ui.cli.broker_door import add_door, door_in
from semel.ui.cli.cluster import cluster_actions, cluster_at, coordinator_of
from semel.ui.cli.display import NOTHING, is_confirmed, print_table, printable
from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from semel.ui.console.broker_door import BrokerDoor, InFlight

EXAMPLE: Final = """  semel groups describe billing
  semel groups reset billing --topic payments:0,1 --to 2026-01-31T12:00:00Z
  semel groups reset billing --to-offsets payments:0=4711,1=4702
  semel groups reset billing --to earliest --execute"""

# How much is read in order to count lag. A person waits a second or two for it.
COUNTED_BYTES_MAX: Final = 64 * 1024 * 1024
# Share partitions of which a broker is asked what is in flight.
SHARED_MAX: Final = 1_000
_PAIR: Final = re.compile(r"(?P<partition>[0-9]{1,9})=(?P<offset>[0-9]{1,18})")


class Row(NamedTuple):
    """How far a group is in one partition; None if not known."""

    where: TopicPartition
    committed: int | None
    end: int | None
    lag: Lag | None
    # How many offsets at the end open transactions keep from readers of committed records.
    held: int | None
    member_id: str

    def cells(self) -> tuple[str, ...]:
        lag = None if self.lag is None else f"{'' if self.lag.is_exact else '<='}{self.lag.records}"
        figures = [NOTHING if one is None else str(one) for one in (self.committed, self.end, lag, self.held)]
        return self.where.topic, str(self.where.partition), *figures, self.member_id


def configure(parser: argparse.ArgumentParser) -> None:
    action = cluster_actions(parser, "name", "the group's name")
    action("list", "show every group, with its protocol and its state")
    describe = action(
        "describe", "show a group's members, and in each partition its offset and how many records it has still to get"
    )
    add_door(describe, "show what a share group has in flight: the address at which the broker serves its metrics")
    reset = action("reset", "set the offsets of a group without members, or show what they would be")
    to = reset.add_mutually_exclusive_group(required=True)
    to.add_argument("--to", metavar="WHERE", help="earliest, latest, an offset, or a time: 2026-01-31T12:00:00Z")
    to.add_argument(
        "--to-offsets",
        action="append",
        metavar="TOPIC:P=OFFSET[,P=OFFSET]",
        help="an offset for each partition; may be given several times, for several topics",
    )
    reset.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:P,P]",
        help="only this topic, or only these partitions of it; may be given several times (all the group knows)",
    )
    reset.add_argument("--execute", action="store_true", help="do it, instead of showing what would be done")
    delete = action("delete", "delete a group without members, and its offsets")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with cluster_at(options) as cluster:
        if options.action == "list":
            _list(cluster)
        elif options.action == "describe":
            _describe(cluster, options.name, door_in(options))
        elif options.action == "reset":
            _reset(cluster, options)
        else:
            _delete(cluster, options.name, options.yes)
    return 0


# -- list and describe ------------------------------------------------------------------------------------------


def _list(cluster: Cluster) -> None:
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(one.name, one.kind, one.state or NOTHING) for one in groups.listed(cluster).values()]
    print_table(rows)


def _describe(cluster: Cluster, name: str, door: BrokerDoor | None) -> None:
    group = groups.group_of(cluster, name)
    coordinator = coordinator_of(cluster, name, GROUP)
    members = groups.members(cluster, coordinator, group)
    in_flight = {} if door is None or group.kind != groups.SHARE else _in_flight(door, name)
    print(f"group {printable(name)}  type {group.kind}  state {group.state or NOTHING}")
    for member in members:
        print(f"member {printable(_line(member))}")
    if group.kind == groups.SHARE:
        _show_shared(groups.shared(cluster, coordinator, name), _sharers(members), in_flight)
        return
    committed = groups.committed(cluster, coordinator, name)
    rows = list(_rows(cluster, committed, _owners(members)))
    if not rows:
        print("no offsets")
        return
    print_table([("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "HELD", "MEMBER"), *(row.cells() for row in rows)])
    if any(row.held for row in rows):
        print("HELD offsets wait for open transactions: `semel transactions list --state Ongoing` shows them")
    unstable = groups.unstable(cluster, coordinator, name, [row.where for row in rows])
    if unstable:
        places = ", ".join(map(str, unstable))
        print(f"an open transaction will commit offsets of this group in {places}; clients wait for its end")


def _in_flight(door: BrokerDoor, name: str) -> dict[TopicPartition, InFlight]:
    from semel.ui.console.broker_door import NotTold

    try:
        return door.shares(name, SHARED_MAX)
    except NotTold as error:
        raise Failure(str(error)) from None


def _show_shared(
    shared: dict[TopicPartition, Shared],
    sharers: dict[TopicPartition, list[str]],
    in_flight: dict[TopicPartition, InFlight],
) -> None:
    rows: list[tuple[str, ...]] = []
    for where in sorted({*shared, *sharers}):
        one, flight = shared.get(where), in_flight.get(where)
        figures = [NOTHING if figure is None else str(figure) for figure in (one or (None, None))]
        if flight is not None:
            often = ", ".join(f"{count} x{times}" for times, count in flight.deliveries if times)
            figures += [str(flight.held), str(flight.waiting), often or NOTHING]
        elif in_flight:
            figures += [NOTHING] * 3
        rows.append((where.topic, str(where.partition), *figures, " ".join(sharers.get(where, [NOTHING]))))
    if rows:
        more = ("HELD", "AGAIN", "DELIVERED") if in_flight else ()
        print_table([("TOPIC", "PARTITION", "START", "LAG", *more, "MEMBERS"), *rows])
    else:
        print("no offsets")


def _sharers(members: list[Member]) -> dict[TopicPartition, list[str]]:
    sharers: dict[TopicPartition, list[str]] = {}
    for member in members:
        for where in member.partitions:
            sharers.setdefault(where, []).append(member.member_id)
    return sharers


def _line(member: Member) -> str:
    static = f"  instance {member.instance_id}" if member.instance_id else ""
    return f"{member.member_id}  client {member.client_id}  host {member.host}{static}"


def _owners(members: list[Member]) -> dict[TopicPartition, str]:
    return {where: member.member_id for member in members for where in member.partitions}


def _rows(
    cluster: Cluster, committed: dict[TopicPartition, Committed], owners: dict[TopicPartition, str]
) -> Iterable[Row]:
    places = sorted({*committed, *owners})
    there = _existing(cluster, places)
    stable, ends = stable_and_ends(cluster, there)
    standings = {where: Standing(where, one.offset) for where, one in committed.items()}
    found = lags(cluster, standings.values(), stable, COUNTED_BYTES_MAX)
    for where in places:
        standing = standings.get(where)
        yield Row(
            where,
            None if standing is None else standing.offset,
            ends.get(where),
            None if standing is None else found.get(standing),
            ends[where] - stable[where] if where in ends and where in stable else None,
            owners.get(where, NOTHING),
        )


def _existing(cluster: Cluster, places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of these partitions that exist: a group may still have others, of a topic that was deleted or recreated."""
    topics = cluster.every_topic(with_internal=True)
    return sorted(one for one in places if one.topic in topics and one.partition < topics[one.topic].partitions)


# -- reset and delete -------------------------------------------------------------------------------------------


def _reset(cluster: Cluster, options: argparse.Namespace) -> None:
    name, execute = options.name, options.execute
    coordinator = coordinator_of(cluster, name, GROUP)
    listed = groups.listed(cluster).get(name)
    is_shared = listed is not None and listed.kind == groups.SHARE
    before = _starts(cluster, coordinator, name) if is_shared else groups.committed(cluster, coordinator, name)
    target = _target(cluster, options, before)
    # A share group reads what open transactions hold back when they have ended.
    held = {} if is_shared else groups.held_back(cluster, before, target)
    if execute:
        (groups.set_starts if is_shared else groups.commit)(cluster, coordinator, name, target)
    table = [("TOPIC", "PARTITION", "FROM", "TO")]
    for where, offset in target.items():
        one = before.get(where)
        table.append((where.topic, str(where.partition), NOTHING if one is None else str(one.offset), str(offset)))
    print_table(table)
    for where, (stable, skipped) in held.items():
        print(f"held back by open transactions and skipped in {where}: {skipped} from offset {stable} on")
    print(f"group {name} is set to these offsets" if execute else "nothing was changed; pass --execute to do it")
    known = {where: before[where].offset for where in target if where in before}
    if execute and known:
        print(f"to put them back: {_command(options, known)}")


def _target(
    cluster: Cluster, options: argparse.Namespace, before: dict[TopicPartition, Committed]
) -> dict[TopicPartition, int]:
    if options.to_offsets:
        if options.topic:
            raise Failure("--to-offsets names the partitions itself: leave out --topic")
        return groups.within(cluster, _offsets(cluster, options.to_offsets))
    partitions = _named(cluster, options.topic) if options.topic else _existing(cluster, before)
    if not partitions:
        raise Failure(f"group {options.name!r} has no offsets; name the topics with --topic")
    return groups.target(cluster, partitions, options.to)


def _command(options: argparse.Namespace, offsets: dict[TopicPartition, int]) -> str:
    """The command that sets the group to these offsets."""
    words = ["semel", "groups", "reset", options.name]
    for option in ("bootstrap", "command_config"):
        if getattr(options, option) is not None:
            words += [f"--{option.replace('_', '-')}", getattr(options, option)]
    for topic in dict.fromkeys(where.topic for where in offsets):
        own = ",".join(f"{where.partition}={offset}" for where, offset in offsets.items() if where.topic == topic)
        words += ["--to-offsets", f"{topic}:{own}"]
    return shlex.join([*words, "--execute"])


def _offsets(cluster: Cluster, texts: list[str]) -> dict[TopicPartition, int]:
    """The offsets that the user has named as TOPIC:0=17,1=40."""
    offsets: dict[TopicPartition, int] = {}
    for text in texts:
        name, _, pairs = text.partition(":")
        named = [_PAIR.fullmatch(pair) for pair in pairs.split(",")]
        every = partitions_of(topic_of(cluster, name))
        for one in named:
            if one is None:
                raise Failure(f"{text!r} names no offsets: TOPIC:0=17,1=40 does")
            where = TopicPartition(name, int(one["partition"]))
            if where not in every:
                raise Failure(f"{text!r}: topic {name!r} has no partition {where.partition}, it has {len(every)}")
            if where in offsets:
                raise Failure(f"partition {where} is named twice")
            offsets[where] = int(one["offset"])
    return dict(sorted(offsets.items()))


def _named(cluster: Cluster, texts: list[str]) -> list[TopicPartition]:
    """The partitions that the user has named as TOPIC or TOPIC:0,1."""
    partitions: list[TopicPartition] = []
    for text in texts:
        name, colon, numbers = text.partition(":")
        every = partitions_of(topic_of(cluster, name))
        try:
            own = [TopicPartition(name, int(number)) for number in numbers.split(",")] if colon else every
        except ValueError:
            raise Failure(f"{text!r} names no partitions: TOPIC:0,1 does") from None
        partitions += sorted(own)
    return partitions


def _starts(cluster: Cluster, coordinator: Address, name: str) -> dict[TopicPartition, Committed]:
    """The starts of a share group, as if it had committed them."""
    return {where: Committed(one.start, None) for where, one in groups.shared(cluster, coordinator, name).items()}


def _delete(cluster: Cluster, name: str, sure: bool) -> None:
    groups.group_of(cluster, name)
    question = f"Delete group {name}, and how far it has come?"
    if not sure and not is_confirmed(question, "deleting cannot be undone; say --yes"):
        print("kept")
        return
    groups.delete(cluster, coordinator_of(cluster, name, GROUP), name)
    print(f"deleted {name}")
