"""Consumer groups: a page of their list with their lag, one group with its members and offsets, and plans of changes.

A page counts lag in records, up to the last stable offset: what a reader of committed records could have read by now.
What an open transaction holds back is shown separately, because no consumer can read it yet.

A reset sets exactly the offsets that its plan has shown, and is refused if the group has moved meanwhile. "Latest" is
the end of a partition, as in Kafka's own tool, also where an open transaction holds records back. The plan says how
many of these the group would skip.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from semel.client import groups
from semel.client.cluster import GROUP, Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker
from semel.client.groups import Listed, Member
from semel.client.lag import Lag, Standing, lags, total
from semel.client.places import EARLIEST, LATEST, Isolation, TopicPartition
from semel.client.topics import offsets_of, partitions_of, topic_of
from semel.ui.cli.display import counted
from semel.ui.console.broker_door import BrokerDoor, InFlight, NotTold
from semel.ui.console.commands import command
from semel.ui.console.http import PageRefused
from semel.ui.console.plans import Plan
from semel.ui.console.query import Query
from semel.ui.console.topics import led

# The size of a page, which asks for the offsets of each group that it shows.
GROUPS_MAX: Final = 50
ROWS_MAX: Final = 100
# A reset is one request. Larger ones are for the command line.
RESET_MAX: Final = 500
PARTITION_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1
# The field with the offsets of a plan.
STEPS: Final = "steps"

Answer = dict[str, Any]

# Other kinds have no members and no offsets that these requests could tell.
_KINDS_KNOWN: Final = ("classic", "consumer")
_TELLS_NOTHING: Final = "a broker of semel tells it where it serves its metrics: start the console with --decisions"
_EMPTY: Final = "Empty"

# A list of 100,000 groups takes some 30 MB, so only one thread at a time makes one, and keeps little of it.
_LISTING: Final = threading.Lock()


def every_group(cluster: Cluster, query: Query) -> Answer:
    """One page of the groups whose names contain a text."""
    wanted = query.text("find", "").strip().lower()
    page = query.number("page", 1, least=1)
    begin = (page - 1) * GROUPS_MAX
    count, shown = some_of_list(cluster, wanted, begin, begin + GROUPS_MAX)
    places = {one.name: committed_of(cluster, one) for one in shown}
    standings = [Standing(*place) for known in places.values() for place in (known or {}).items()]
    found = lags(cluster, standings, _stable(cluster, {one.where for one in standings}))
    return {
        "count": count,
        "page": page,
        "pages": max(-(-count // GROUPS_MAX), 1),
        "groups": [
            {"name": one.name, "kind": one.kind, "state": one.state, **_lag(places[one.name], found)} for one in shown
        ],
    }


def some_of_list(cluster: Cluster, wanted: str, begin: int, end: int) -> tuple[int, list[Listed]]:
    """How many groups have this text in their names, and the part of their list from `begin` to `end`."""
    with _LISTING:
        matching = [one for one in groups.listed(cluster).values() if wanted in one.name.lower()]
        return len(matching), matching[begin:end]


def committed_of(cluster: Cluster, group: Listed) -> dict[TopicPartition, int] | None:
    """The committed offsets of a group; None if they cannot be read, as for a kind of group that has none."""
    try:
        committed = groups.committed(cluster, group.coordinator, group.name)
        return {where: one.offset for where, one in committed.items()}
    except (AuthenticationFailed, RefusedByBroker):
        return None


def members_of(cluster: Cluster, group: Listed) -> list[Member]:
    """The members of a group; none if it has none, or if they cannot be read."""
    if group.kind not in _KINDS_KNOWN or group.state == _EMPTY:
        return []
    try:
        return groups.members(cluster, group.coordinator, group)
    except (AuthenticationFailed, RefusedByBroker):
        return []


def _stable(cluster: Cluster, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The last stable offsets of those of these partitions that still exist and have leaders."""
    return offsets_of(cluster, _present(cluster, wanted), LATEST, Isolation.READ_COMMITTED)


def _present(cluster: Cluster, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    places = sorted(wanted)
    topics = cluster.topics({where.topic for where in places})
    return led(cluster, [one for one in places if one.topic in topics and one.partition < topics[one.topic].partitions])


def _lag(committed: dict[TopicPartition, int] | None, found: dict[Standing, Lag]) -> Answer:
    if committed is None:
        return {"partitions": None, **lag_shown(None)}
    standings = [Standing(*place) for place in committed.items()]
    return {"partitions": len(committed), **lag_shown(total(found[one] for one in standings if one in found))}


def lag_shown(lag: Lag | None) -> Answer:
    """A lag for a page: the number of records, whether it is exact, and no number if it is not known."""
    return {"lag": None, "lag_is_exact": True} if lag is None else {"lag": lag.records, "lag_is_exact": lag.is_exact}


def one_group(cluster: Cluster, query: Query, door: BrokerDoor | None = None) -> Answer:
    """A group, its members, and a page of its partitions."""
    group = _group(cluster, query.name("group"))
    if group.kind == groups.SHARE:
        return _share_group(cluster, group, query, door)
    is_known = group.kind in _KINDS_KNOWN
    members = groups.members(cluster, group.coordinator, group) if is_known else []
    owners = {where: one.member_id for one in members for where in one.partitions}
    committed = committed_of(cluster, group) or {}
    every = sorted({*committed, *owners})
    shown, about = query.page_of(every, ROWS_MAX)
    present = _present(cluster, every)
    stable = offsets_of(cluster, present, LATEST, Isolation.READ_COMMITTED)
    end = offsets_of(cluster, [where for where in shown if where in present], LATEST)
    first = offsets_of(cluster, [where for where in shown if where in present], EARLIEST)
    found = lags(cluster, [Standing(*place) for place in committed.items()], stable)
    return {
        "name": group.name,
        "kind": group.kind,
        "is_known": is_known,
        "state": group.state,
        "coordinator": "{}:{}".format(*group.coordinator),
        **lag_shown(total(found.values())),
        "members": [_member(one) for one in members[:ROWS_MAX]],
        "member_count": len(members),
        **about,
        "partitions": [
            {
                "topic": where.topic,
                "partition": where.partition,
                "begin": first.get(where),
                "committed": committed.get(where),
                "stable": stable.get(where),
                "end": end.get(where),
                **lag_shown(found.get(Standing(where, committed[where])) if where in committed else None),
                "member": owners.get(where),
            }
            for where in shown
        ],
    }


def _share_group(cluster: Cluster, group: Listed, query: Query, door: BrokerDoor | None) -> Answer:
    """A share group: what is not done yet, and what is in flight if a broker of semel tells it."""
    members = groups.members(cluster, group.coordinator, group)
    shared = groups.shared(cluster, group.coordinator, group.name)
    every = sorted(shared)
    shown, about = query.page_of(every, ROWS_MAX)
    in_flight: dict[TopicPartition, InFlight] = {}
    why_not = None if door is not None else _TELLS_NOTHING
    if door is not None:
        try:
            in_flight = door.shares(group.name, about["page"] * ROWS_MAX)
        except NotTold as error:
            why_not = str(error)
    known = [one.lag for one in shared.values() if one.lag is not None]
    return {
        "name": group.name,
        "kind": group.kind,
        "is_known": True,
        "is_shared": True,
        "state": group.state,
        "coordinator": "{}:{}".format(*group.coordinator),
        "lag": sum(known) if known else None,
        "lag_is_exact": len(known) == len(shared),
        "members": [_member(one) for one in members[:ROWS_MAX]],
        "member_count": len(members),
        **about,
        "why_not": why_not,
        "partitions": [
            {
                "topic": where.topic,
                "partition": where.partition,
                "start": shared[where].start,
                "lag": shared[where].lag,
                "lag_is_exact": True,
                "in_flight": in_flight[where]._asdict() if where in in_flight else None,
            }
            for where in shown
        ],
    }


def _member(member: Member) -> Answer:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": len(member.partitions),
    }


def _group(cluster: Cluster, name: str) -> Listed:
    with _LISTING:
        return groups.group_of(cluster, name)


def reset(cluster: Cluster, query: Query) -> Plan:
    """Set a group to other offsets."""
    name, topic, to = query.name("group"), query.text("topic", "").strip(), query.text("to").strip()
    coordinator = cluster.coordinator(name, GROUP)
    committed = groups.committed(cluster, coordinator, name)
    if query.has(STEPS):
        targets = _steps(query.text(STEPS, text_max=RESET_MAX * 400))
    else:
        targets = groups.target(cluster, _to_reset(cluster, topic, committed), to)
    before = {where: committed[where].offset if where in committed else None for where in targets}
    only = (f"--topic={topic}",) if topic else ()

    def do() -> str:
        groups.commit(cluster, coordinator, name, targets)
        return f"Group {name} is set to these offsets."

    return Plan(
        do,
        title=f"Set group {name} to {to}?",
        button="Do it",
        warns=_held_back(groups.held_back(cluster, committed, targets)),
        columns=("Partition", "From", "To", "So"),
        rows=[
            (str(where), "nothing" if before[where] is None else before[where], offset, _effect(before[where], offset))
            for where, offset in sorted(targets.items())
        ],
        says=("The group must have no members.",),
        pinned={STEPS: json.dumps([[one.topic, one.partition, offset] for one, offset in targets.items()])},
        command=command("groups", "reset", f"--to={to}", *only, "--execute", name=name),
    )


def delete(cluster: Cluster, query: Query) -> Plan:
    """Delete a group, and its offsets."""
    group = _group(cluster, query.name("group"))
    if members_of(cluster, group):
        raise PageRefused(400, f"group {group.name!r} has members: stop them first")
    committed = committed_of(cluster, group) or {}

    def do() -> str:
        groups.delete(cluster, group.coordinator, group.name)
        return f"Group {group.name} is deleted."

    return Plan(
        do,
        title=f"Delete group {group.name}?",
        button="Delete it",
        warns=(
            f"How far it has come in {counted(len(committed), 'partition')} is forgotten: a consumer that comes back "
            "begins where its auto.offset.reset says. This cannot be undone.",
        ),
        seen=[group.kind, sorted((str(where), offset) for where, offset in committed.items())],
        typed=group.name,
        command=command("groups", "delete", name=group.name),
        then="/groups",
    )


def _to_reset(cluster: Cluster, topic: str, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    partitions = partitions_of(topic_of(cluster, topic)) if topic else list(_present(cluster, committed))
    if not partitions:
        raise PageRefused(400, "the group has committed nothing: name a topic in which it is to begin")
    if len(partitions) > RESET_MAX:
        raise PageRefused(400, f"a page resets at most {RESET_MAX} partitions: use `semel groups reset`")
    return partitions


def _held_back(held: Mapping[TopicPartition, tuple[int, int]]) -> list[str]:
    """A warning about the records that nobody can read yet, and that the group would never read."""
    if not held:
        return []
    what = counted(
        sum(skipped for _, skipped in held.values()),
        "offset that an open transaction holds back",
        "offsets that open transactions hold back",
    )
    places = ", ".join(f"{skipped} in {where} from offset {stable} on" for where, (stable, skipped) in held.items())
    return [
        f"This skips {what}: {places}. If such a transaction is committed later, the group does not read its records. "
        "To keep them, end the transaction first (the page of transactions shows it), or set the group to the offset "
        "that is named here."
    ]


def _effect(before: int | None, after: int) -> str:
    if before is None:
        return "begins there"
    if before == after:
        return "stays"
    return f"{counted(abs(after - before), 'offset is', 'offsets are')} {'skipped' if after > before else 'read again'}"


def _steps(text: str) -> dict[TopicPartition, int]:
    """The offsets that a plan has shown, and that the page sends back."""
    refused = PageRefused(400, "steps are those of a plan")
    try:
        rows = json.loads(text)
        steps = {}
        for topic, partition, offset in rows:
            where = TopicPartition(_encodable(topic), _whole(partition, PARTITION_MAX))
            steps[where] = _whole(offset, OFFSET_MAX)
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise refused from None
    if not 0 < len(steps) <= RESET_MAX:
        raise refused
    return steps


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no such number")
    return value


def _encodable(name: Any) -> str:
    """A text that can be sent; JSON may hold halves of characters."""
    name.encode()
    return str(name)
