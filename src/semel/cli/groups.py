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

from semel.cli.client import (
    EARLIEST,
    GROUP,
    LATEST,
    READ_UNCOMMITTED,
    Client,
    Connection,
    Refused,
    TopicMetadata,
    add_bootstrap,
)
from semel.cli.errors import Failure
from semel.cli.showing import NOTHING, print_table, printable
from semel.cli.subcommands import add_subcommand
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.primitives import INT32, MALFORMED, read_length, read_string
from semel.wire.versions import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)

EXAMPLE: Final = """  semel groups describe billing
  semel groups reset billing --topic payments:0,1 --to 2026-01-31T12:00:00Z
  semel groups reset billing --to earliest --execute"""

_CONSUMER_PROTOCOL: Final = "consumer"
# In front of a classic assignment.
_VERSION_BYTES: Final = 2

Place = tuple[str, int]


class Row(NamedTuple):
    """How far a group has come in one partition; None for what is not known."""

    place: Place
    committed: int | None
    end: int | None
    member_id: str

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)


class Members(NamedTuple):
    """The members of a group as lines, and whose each partition is."""

    lines: list[str]
    owners: dict[Place, str]


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
    with Client(options.bootstrap) as client:
        if options.action == "list":
            _list(client)
        elif options.action == "describe":
            _describe(client, options.name)
        elif options.action == "reset":
            _reset(client, options.name, options.to, options.topic, options.execute)
        else:
            _delete(client, options.name, options.yes)
    return 0


# -- list and describe ------------------------------------------------------------------------------------------


def _groups(client: Client) -> dict[str, Any]:
    """Every group that some broker looks after."""
    found = {}
    for broker in client.brokers():
        answer = broker.ask(LIST_GROUPS, states_filter=[], types_filter=[])
        if answer.error_code:
            raise Refused("the list of groups", answer.error_code)
        found.update({str(group.group_id): group for group in answer.groups})
    return dict(sorted(found.items()))


def _group(client: Client, name: str) -> Any:
    group = _groups(client).get(name)
    if group is None:
        raise Failure(f"there is no group {name!r}")
    return group


def _list(client: Client) -> None:
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(name, _type_of(group), _state_of(group)) for name, group in _groups(client).items()]
    print_table(rows)


def _type_of(group: Any) -> str:
    # Only version 5 tells the protocols apart, and brokers that do not know it know one.
    return str(getattr(group, "group_type", "classic")).lower()


def _state_of(group: Any) -> str:
    return str(getattr(group, "group_state", NOTHING))


def _describe(client: Client, name: str) -> None:
    group = _group(client, name)
    coordinator = client.coordinator(name, GROUP)
    members = _members(coordinator, name, _type_of(group))
    print(f"group {printable(name)}  type {_type_of(group)}  state {_state_of(group)}")
    for line in members.lines:
        print(f"member {printable(line)}")
    committed = _committed(coordinator, name)
    rows = list(_rows(client, committed, members.owners))
    if not rows:
        print("no offsets")
        return
    table: list[tuple[str, ...]] = [("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")]
    for row in rows:
        topic, partition = row.place
        figures = [NOTHING if figure is None else str(figure) for figure in (row.committed, row.end, row.lag)]
        table.append((topic, str(partition), *figures, row.member_id))
    print_table(table)


def _rows(client: Client, committed: dict[Place, int], owners: dict[Place, str]) -> Iterable[Row]:
    topics = {topic.name: topic for topic in client.topics()}
    places = sorted({*committed, *owners})
    for name in sorted({name for name, _ in places}):
        own = [place for place in places if place[0] == name]
        topic = topics.get(name)
        ends = {} if topic is None else _offsets(client, topic, [index for _, index in own if index in topic.leaders])
        for place in own:
            yield Row(place, committed.get(place), ends.get(place[1]), owners.get(place, NOTHING))


def _offsets(client: Client, topic: TopicMetadata, partitions: Iterable[int], which: int = LATEST) -> dict[int, int]:
    """As Kafka's own tools count: to the end of the log, and not to where the oldest open transaction begins."""
    return client.offsets(topic, partitions, which, READ_UNCOMMITTED)


def _committed(coordinator: Connection, name: str) -> dict[Place, int]:
    asked = {"group_id": name, "topics": None}
    answer = coordinator.ask(OFFSET_FETCH, **asked, groups=[asked], require_stable=False)
    (found,) = getattr(answer, "groups", None) or [answer]
    if found.error_code:
        raise Refused(f"group {name!r}", found.error_code)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in found.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def _members(coordinator: Connection, name: str, group_type: str) -> Members:
    if group_type == _CONSUMER_PROTOCOL:
        answer = coordinator.ask(CONSUMER_GROUP_DESCRIBE, group_ids=[name], include_authorized_operations=False)
    else:
        answer = coordinator.ask(DESCRIBE_GROUPS, groups=[name], include_authorized_operations=False)
    (group,) = answer.groups
    if group.error_code:
        raise Refused(f"group {name!r}", group.error_code)
    members = Members([], {})
    for member in sorted(group.members, key=lambda member: str(member.member_id)):
        instance_id = getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None)
        static = f"  instance {instance_id}" if instance_id else ""
        members.lines.append(f"{member.member_id}  client {member.client_id}  host {member.client_host}{static}")
        members.owners.update(dict.fromkeys(_assigned(member), str(member.member_id)))
    return members


def _assigned(member: Any) -> list[Place]:
    """What a member was given; nothing where it is written in a way that only the members know."""
    if hasattr(member, "assignment"):
        given = member.assignment.topic_partitions
        return [(str(topic.topic_name), partition) for topic in given for partition in topic.partitions]
    try:
        return _read_assignment(memoryview(member.member_assignment))
    except (*MALFORMED, ProtocolError):
        return []


def _read_assignment(data: memoryview) -> list[Place]:
    """The assignment of the classic consumer protocol: a version, then topics, each with its partitions."""
    places: list[Place] = []
    at = _VERSION_BYTES
    topics, at = read_length(data, at, flexible=False)
    for _ in range(topics):
        name, at = read_string(data, at, flexible=False)
        count, at = read_length(data, at, flexible=False)
        for _ in range(count):
            places.append((name, INT32.unpack_from(data, at)[0]))
            at += INT32.size
    return places


# -- reset and delete -------------------------------------------------------------------------------------------


def _reset(client: Client, name: str, where: str, wanted: list[str] | None, execute: bool) -> None:
    coordinator = client.coordinator(name, GROUP)
    committed = _committed(coordinator, name)
    topics = _wanted(client, wanted) if wanted else _known(client, committed)
    if not topics:
        raise Failure(f"group {name!r} has no offsets; say which topics it is to have some in, with --topic")
    target: dict[Place, int] = {}
    for topic, partitions in topics:
        found = _target(client, topic, partitions, where)
        target |= {(topic.name, partition): offset for partition, offset in sorted(found.items())}
    if execute:
        _commit(coordinator, name, target)
    table = [("TOPIC", "PARTITION", "FROM", "TO")]
    for (topic_name, partition), offset in target.items():
        before = committed.get((topic_name, partition))
        table.append((topic_name, str(partition), NOTHING if before is None else str(before), str(offset)))
    print_table(table)
    print(f"group {name} is set to these offsets" if execute else "nothing was changed; say --execute to do it")


def _wanted(client: Client, wanted: list[str]) -> list[tuple[TopicMetadata, list[int]]]:
    """The partitions that were asked for as TOPIC or TOPIC:0,1."""
    found = []
    for text in wanted:
        name, colon, numbers = text.partition(":")
        topic = client.topic(name)
        try:
            partitions = [int(number) for number in numbers.split(",")] if colon else list(topic.leaders)
        except ValueError:
            raise Failure(f"{text!r} names no partitions: TOPIC:0,1 does") from None
        found.append((topic, partitions))
    return found


def _known(client: Client, committed: dict[Place, int]) -> list[tuple[TopicMetadata, list[int]]]:
    """The partitions that the group has offsets in, as far as they are still there."""
    return [
        (topic, [partition for name, partition in committed if name == topic.name])
        for topic in client.topics()
        if any(name == topic.name for name, _ in committed)
    ]


def _target(client: Client, topic: TopicMetadata, partitions: list[int], where: str) -> dict[int, int]:
    """The offset that `where` means in each partition, within what there is."""
    if where == "earliest":
        return _offsets(client, topic, partitions, EARLIEST)
    latest = _offsets(client, topic, partitions)
    if where == "latest":
        return latest
    if where.isascii() and where.isdigit():
        earliest = _offsets(client, topic, partitions, EARLIEST)
        return {index: min(max(int(where), earliest[index]), latest[index]) for index in latest}
    since = _offsets(client, topic, partitions, _parse_time(where))
    # Where nothing is that young the next record will be.
    return {index: latest[index] if offset < 0 else offset for index, offset in since.items()}


def _parse_time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(f"{text!r} is neither earliest, latest, an offset nor a time: 2026-01-31T12:00:00Z is") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


def _commit(coordinator: Connection, name: str, target: dict[Place, int]) -> None:
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic_name, partition), offset in target.items():
        topics.setdefault(topic_name, []).append(
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": None}
        )
    answer = coordinator.ask(
        OFFSET_COMMIT,
        group_id=name,
        member_id="",
        generation_id_or_member_epoch=-1,
        retention_time=-1,
        topics=[{"name": topic_name, "partitions": partitions} for topic_name, partitions in topics.items()],
    )
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise Failure(f"group {name!r} has members; stop them first, or they would go on where they are")
            if partition.error_code:
                where = f"partition {partition.partition_index} of topic {topic.name!r}"
                raise Refused(where, partition.error_code)


def _delete(client: Client, name: str, sure: bool) -> None:
    _group(client, name)
    if not sure:
        if not sys.stdin.isatty():
            raise Failure("deleting cannot be undone; say --yes")
        print(f"Delete group {name}, and how far it has come? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("kept")
            return
    (deleted,) = client.coordinator(name, GROUP).ask(DELETE_GROUPS, groups_names=[name]).results
    if deleted.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise Failure(f"group {name!r} has members; stop them first")
    if deleted.error_code:
        raise Refused(f"group {name!r}", deleted.error_code)
    print(f"deleted {name}")
