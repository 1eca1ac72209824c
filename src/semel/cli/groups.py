"""`semel groups`: how far consumer groups have come and how much is left for them, and setting them elsewhere.

It works against semel and against Apache Kafka. `reset` shows what it would do, and does it with `--execute`: what a
group has read or skipped by mistake cannot be taken back. It must never move a group that has members, and need not
see to that: the broker refuses it.
"""

import argparse
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from semel.cli.cluster import add_bootstrap, cluster_at, coordinator_of, offsets_of, partitions_of, topic_of
from semel.cli.display import NOTHING, print_table, printable
from semel.cli.errors import Failure
from semel.cli.subcommands import add_subcommand
from semel.client import codes, groups
from semel.client.cluster import GROUP, Cluster
from semel.client.errors import Refused
from semel.client.groups import Committed
from semel.client.places import EARLIEST, LATEST, Isolation, Position, TopicPartition
from semel.client.settings import Address
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.primitives import INT32, MALFORMED, read_length, read_string
from semel.wire.versions import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
)

EXAMPLE: Final = """  semel groups describe billing
  semel groups reset billing --topic payments:0,1 --to 2026-01-31T12:00:00Z
  semel groups reset billing --to earliest --execute"""

_CONSUMER_PROTOCOL: Final = "consumer"
# In front of a classic assignment.
_VERSION_BYTES: Final = 2


class Row(NamedTuple):
    """How far a group has come in one partition; None for what is not known."""

    where: TopicPartition
    committed: int | None
    end: int | None
    member_id: str

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)


class Members(NamedTuple):
    """The members of a group as lines, and whose each partition is."""

    lines: list[str]
    owners: dict[TopicPartition, str]


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        if name != "list":
            own.add_argument("name", metavar="NAME", help="the group's name")
        add_bootstrap(own)
        return own

    action("list", "show every group, with its protocol and its state")
    action("describe", "show a group's members, how far it has come in each partition, and how much is left")
    reset = action("reset", "set a group without members to other offsets, or show what that would be")
    reset.add_argument(
        "--to", required=True, metavar="WHERE", help="earliest, latest, an offset, or a time: 2026-01-31T12:00:00Z"
    )
    reset.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:P,P]",
        help="only this topic, or only these partitions of it; may be given several times (all the group knows)",
    )
    reset.add_argument("--execute", action="store_true", help="do it, instead of showing what would be done")
    delete = action("delete", "delete a group without members, and with it how far it has come")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with cluster_at(options) as cluster:
        if options.action == "list":
            _list(cluster)
        elif options.action == "describe":
            _describe(cluster, options.name)
        elif options.action == "reset":
            _reset(cluster, options.name, options.to, options.topic, options.execute)
        else:
            _delete(cluster, options.name, options.yes)
    return 0


# -- list and describe ------------------------------------------------------------------------------------------


def _groups(cluster: Cluster) -> dict[str, Any]:
    """Every group that some broker looks after."""
    listed = {}
    for broker in cluster.brokers():
        answer = cluster.ask(broker, LIST_GROUPS, states_filter=[], types_filter=[])
        codes.check_coordinator("the list of groups", answer.error_code, right="Describe on groups")
        listed.update({str(group.group_id): group for group in answer.groups})
    return dict(sorted(listed.items()))


def _group(cluster: Cluster, name: str) -> Any:
    group = _groups(cluster).get(name)
    if group is None:
        raise Failure(f"there is no group {name!r}")
    return group


def _list(cluster: Cluster) -> None:
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(name, _type_of(group), _state_of(group)) for name, group in _groups(cluster).items()]
    print_table(rows)


def _type_of(group: Any) -> str:
    # Only version 5 tells the protocols apart, and brokers that do not know it know one.
    return str(getattr(group, "group_type", "classic")).lower()


def _state_of(group: Any) -> str:
    return str(getattr(group, "group_state", NOTHING))


def _describe(cluster: Cluster, name: str) -> None:
    group = _group(cluster, name)
    coordinator = coordinator_of(cluster, name, GROUP)
    members = _members(cluster, coordinator, name, _type_of(group))
    print(f"group {printable(name)}  type {_type_of(group)}  state {_state_of(group)}")
    for line in members.lines:
        print(f"member {printable(line)}")
    committed = groups.committed(cluster, coordinator, name)
    rows = list(_rows(cluster, committed, members.owners))
    if not rows:
        print("no offsets")
        return
    table: list[tuple[str, ...]] = [("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")]
    for row in rows:
        figures = [NOTHING if figure is None else str(figure) for figure in (row.committed, row.end, row.lag)]
        table.append((row.where.topic, str(row.where.partition), *figures, row.member_id))
    print_table(table)


def _rows(
    cluster: Cluster, committed: dict[TopicPartition, Committed], owners: dict[TopicPartition, str]
) -> Iterable[Row]:
    topics = cluster.every_topic(with_internal=True)
    places = sorted({*committed, *owners})
    there = [where for where in places if where.topic in topics and where.partition < topics[where.topic].partitions]
    ends = _offsets(cluster, there, LATEST)
    for where in places:
        before = committed.get(where)
        yield Row(where, None if before is None else before.offset, ends.get(where), owners.get(where, NOTHING))


def _offsets(cluster: Cluster, partitions: Iterable[TopicPartition], at: Position) -> dict[TopicPartition, int]:
    """As Kafka's own tools count: to the end of the log, and not to where the oldest open transaction begins."""
    return offsets_of(cluster, partitions, at, Isolation.READ_UNCOMMITTED)


def _members(cluster: Cluster, coordinator: Address, name: str, group_type: str) -> Members:
    if group_type == _CONSUMER_PROTOCOL:
        wanted: dict[str, object] = {"group_ids": [name], "include_authorized_operations": False}
        answer = cluster.ask(coordinator, CONSUMER_GROUP_DESCRIBE, **wanted)
    else:
        answer = cluster.ask(coordinator, DESCRIBE_GROUPS, groups=[name], include_authorized_operations=False)
    (group,) = answer.groups
    groups.check(name, group.error_code, "Describe")
    members = Members([], {})
    for member in sorted(group.members, key=lambda member: str(member.member_id)):
        instance_id = getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None)
        static = f"  instance {instance_id}" if instance_id else ""
        members.lines.append(f"{member.member_id}  client {member.client_id}  host {member.client_host}{static}")
        members.owners.update(dict.fromkeys(_assignment(member), str(member.member_id)))
    return members


def _assignment(member: Any) -> list[TopicPartition]:
    """What a member was given; nothing where it is written in a way that only the members know."""
    if hasattr(member, "assignment"):
        topics = member.assignment.topic_partitions
        return [TopicPartition(str(topic.topic_name), number) for topic in topics for number in topic.partitions]
    try:
        return _read_assignment(memoryview(member.member_assignment))
    except (*MALFORMED, ProtocolError):
        return []


def _read_assignment(data: memoryview) -> list[TopicPartition]:
    """The assignment of the classic consumer protocol: a version, then topics, each with its partitions."""
    places: list[TopicPartition] = []
    at = _VERSION_BYTES
    topics, at = read_length(data, at, flexible=False)
    for _ in range(topics):
        name, at = read_string(data, at, flexible=False)
        count, at = read_length(data, at, flexible=False)
        for _ in range(count):
            places.append(TopicPartition(name, INT32.unpack_from(data, at)[0]))
            at += INT32.size
    return places


# -- reset and delete -------------------------------------------------------------------------------------------


def _reset(cluster: Cluster, name: str, place: str, topics: list[str] | None, execute: bool) -> None:
    coordinator = coordinator_of(cluster, name, GROUP)
    committed = groups.committed(cluster, coordinator, name)
    partitions = _named(cluster, topics) if topics else _known(cluster, committed)
    if not partitions:
        raise Failure(f"group {name!r} has no offsets; say which topics it is to have some in, with --topic")
    target = _target(cluster, partitions, place)
    if execute:
        _commit(cluster, coordinator, name, target)
    table = [("TOPIC", "PARTITION", "FROM", "TO")]
    for where, offset in target.items():
        before = committed.get(where)
        table.append(
            (where.topic, str(where.partition), NOTHING if before is None else str(before.offset), str(offset))
        )
    print_table(table)
    print(f"group {name} is set to these offsets" if execute else "nothing was changed; say --execute to do it")


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


def _known(cluster: Cluster, committed: dict[TopicPartition, Committed]) -> list[TopicPartition]:
    """The partitions that the group has offsets in, as far as they are still there."""
    topics = cluster.every_topic(with_internal=True)
    return sorted(where for where in committed if where.topic in topics)


def _target(cluster: Cluster, partitions: list[TopicPartition], place: str) -> dict[TopicPartition, int]:
    """The offset that `place` means in each partition, not before its first record nor behind its last one."""
    if place == "earliest":
        return _in_order(_offsets(cluster, partitions, EARLIEST), partitions)
    latest = _in_order(_offsets(cluster, partitions, LATEST), partitions)
    if place == "latest":
        return latest
    if place.isascii() and place.isdigit():
        earliest = _offsets(cluster, partitions, EARLIEST)
        return {where: min(max(int(place), earliest[where]), end) for where, end in latest.items()}
    # Where nothing is that young the next record will be.
    return latest | _offsets(cluster, partitions, _parse_time(place))


def _in_order(offsets: dict[TopicPartition, int], partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    return {where: offsets[where] for where in partitions}


def _parse_time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(f"{text!r} is neither earliest, latest, an offset nor a time: 2026-01-31T12:00:00Z is") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


def _commit(cluster: Cluster, coordinator: Address, name: str, target: dict[TopicPartition, int]) -> None:
    try:
        groups.commit(cluster, coordinator, name, target)
    except Refused as refused:
        if refused.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        raise Failure(f"group {name!r} has members; stop them first, or they would go on where they are") from None


def _delete(cluster: Cluster, name: str, sure: bool) -> None:
    _group(cluster, name)
    if not sure:
        if not sys.stdin.isatty():
            raise Failure("deleting cannot be undone; say --yes")
        print(f"Delete group {name}, and how far it has come? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("kept")
            return
    (deleted,) = cluster.ask(coordinator_of(cluster, name, GROUP), DELETE_GROUPS, groups_names=[name]).results
    if deleted.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise Failure(f"group {name!r} has members; stop them first")
    groups.check(name, deleted.error_code, "Delete")
    print(f"deleted {name}")
