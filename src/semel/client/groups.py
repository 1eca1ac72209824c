"""Consumer groups for administrators: lists groups, their members and their offsets, and sets other offsets.

Each function makes one attempt, over a `Cluster`, at the broker that coordinates the group. It does not join the
group, and must never move a group that has members: the coordinator refuses that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.errors import LogError, RefusedByBroker
from semel.client.places import EARLIEST, LATEST, Isolation, TopicPartition
from semel.client.settings import Address
from semel.client.topics import nearest, offsets_of
from semel.wire import kafka
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.primitives import INT32, MALFORMED, read_length, read_string

# Any number that could be an offset, and none that would take long to read.
_OFFSET: Final = re.compile(r"[0-9]{1,100}")
# The kind of a group of the new protocol.
_CONSUMER_PROTOCOL: Final = "consumer"
# The kind of a share group.
SHARE: Final = "share"
# The metadata of each offset that a query of semel commits to show its progress; no reader starts there.
QUERY_NOTE: Final = "how far a query of semel's is"
# In front of a classic assignment.
_VERSION_BYTES: Final = 2

T = TypeVar("T")


class Listed(NamedTuple):
    name: str
    kind: str
    # None if the broker is too old to list states.
    state: str | None
    # The broker that coordinates it: a broker lists only its own groups.
    coordinator: Address


class Member(NamedTuple):
    """A member of a group, and the partitions that it reads, as far as they are known."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class Committed(NamedTuple):
    """A group's committed offset in a partition, with its metadata."""

    offset: int
    note: str | None


def listed(cluster: Cluster) -> dict[str, Listed]:
    """All groups of all brokers, in the order of their names."""
    groups = {}
    for broker in cluster.brokers():
        error_code, found = cluster.list_groups(broker)
        codes.check_coordinator("the list of groups", error_code, right="Describe on groups")
        # Only version 5 distinguishes the protocols, and brokers without it know only one.
        kinds = {kind: (kind or "classic").lower() for kind in {one.kind for one in found}}
        groups.update({one.name: Listed(one.name, kinds[one.kind], one.state, broker) for one in found})
    return dict(sorted(groups.items()))


def group_of(cluster: Cluster, name: str) -> Listed:
    groups = listed(cluster)
    if name not in groups:
        raise LogError(f"there is no group {name!r}{nearest(name, groups) or ': semel groups list shows all'}")
    return groups[name]


def members(cluster: Cluster, coordinator: Address, group: Listed) -> list[Member]:
    """The members of a group, in the order of their ids."""
    if group.kind in (_CONSUMER_PROTOCOL, SHARE):
        return _assigned_members(cluster, coordinator, group)
    answer = cluster.ask(coordinator, kafka.describe_groups.DescribeGroupsRequest(groups=[group.name]))
    (described,) = answer.groups
    check(group.name, described.error_code, "Describe")
    return sorted(
        Member(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _assignment(one.member_assignment),
        )
        for one in described.members
    )


def _assigned_members(cluster: Cluster, coordinator: Address, group: Listed) -> list[Member]:
    """The same for a group of the new protocol, or a share group."""
    wish: dict[str, Any] = {"group_ids": [group.name], "include_authorized_operations": False}
    consumers, sharers = kafka.consumer_group_describe, kafka.share_group_describe
    described: consumers.DescribedGroup | sharers.DescribedGroup
    if group.kind == SHARE:
        (described,) = cluster.ask(coordinator, sharers.ShareGroupDescribeRequest(**wish)).groups
    else:
        (described,) = cluster.ask(coordinator, consumers.ConsumerGroupDescribeRequest(**wish)).groups
    check(group.name, described.error_code, "Describe")
    return sorted(
        Member(
            one.member_id,
            one.instance_id if isinstance(one, consumers.Member) else None,
            one.client_id,
            one.client_host,
            [
                TopicPartition(topic.topic_name, number)
                for topic in one.assignment.topic_partitions
                for number in topic.partitions
            ],
        )
        for one in described.members
    )


def _assignment(content: bytes) -> list[TopicPartition]:
    """The partitions assigned to a member; none if the assignment has a format that only the members know."""
    try:
        return _read_assignment(memoryview(content))
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


def committed(cluster: Cluster, coordinator: Address, group: str) -> dict[TopicPartition, Committed]:
    """All committed offsets of the group."""
    api = kafka.offset_fetch
    wanted = api.OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = cluster.ask(coordinator, api.OffsetFetchRequest(group_id=group, topics=None, groups=[wanted]))
    # Versions before 8 ask about one group, and have its fields in the answer.
    (answered,) = answer.groups or (answer,)
    check(group, answered.error_code, "Describe")
    return {
        TopicPartition(topic.name, one.partition_index): Committed(one.committed_offset, one.metadata or "")
        for topic in answered.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


class Shared(NamedTuple):
    """The first offset of a share partition that is not done, and how many records are not, if the broker counts."""

    start: int
    lag: int | None


def shared(cluster: Cluster, coordinator: Address, group: str) -> dict[TopicPartition, Shared]:
    """The share partitions of a share group."""
    api = kafka.describe_share_group_offsets
    wanted = api.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (answered,) = cluster.ask(coordinator, api.DescribeShareGroupOffsetsRequest(groups=[wanted])).groups
    check(group, answered.error_code, "Describe")
    return {
        TopicPartition(topic.topic_name, one.partition_index): Shared(
            one.start_offset, None if one.lag < 0 else one.lag
        )
        for topic in answered.topics
        for one in topic.partitions
        if one.start_offset >= 0
    }


def unstable(
    cluster: Cluster, coordinator: Address, group: str, places: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Those of these partitions in which an open transaction will commit offsets of the group, if it is committed."""
    topics: dict[str, list[int]] = {}
    for where in places:
        topics.setdefault(where.topic, []).append(where.partition)
    api = kafka.offset_fetch
    request = api.OffsetFetchRequest(
        group_id=group,
        topics=[api.OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        groups=[
            api.OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    api.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                    for name, numbers in topics.items()
                ],
            )
        ],
        require_stable=True,
    )
    answer = cluster.ask(coordinator, request)
    (answered,) = answer.groups or (answer,)
    return [
        TopicPartition(topic.name, one.partition_index)
        for topic in answered.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    ]


def commit(
    cluster: Cluster, coordinator: Address, group: str, offsets: Mapping[TopicPartition, int], note: str | None = None
) -> None:
    """Set a group that has no members to these offsets."""
    api = kafka.offset_commit
    topics = [
        api.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                api.OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=note
                )
                for number, offset in of_topic.items()
            ],
        )
        for name, of_topic in by_topic(offsets).items()
    ]
    answer = cluster.ask(coordinator, api.OffsetCommitRequest(group_id=group, member_id="", topics=topics))
    for topic in answer.topics:
        for one in topic.partitions:
            _check_change(group, one.error_code, "Read")


def set_starts(cluster: Cluster, coordinator: Address, group: str, starts: Mapping[TopicPartition, int]) -> None:
    """Have a share group that has no members begin at these offsets."""
    api = kafka.alter_share_group_offsets
    topics = [
        api.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                api.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
                for number, offset in of_topic.items()
            ],
        )
        for name, of_topic in by_topic(starts).items()
    ]
    answer = cluster.ask(coordinator, api.AlterShareGroupOffsetsRequest(group_id=group, topics=topics))
    _check_change(group, answer.error_code, "Read")
    for topic in answer.responses:
        for one in topic.partitions:
            _check_change(group, one.error_code, "Read")


def delete(cluster: Cluster, coordinator: Address, group: str) -> None:
    """Delete a group that has no members, and its offsets."""
    (deleted,) = cluster.ask(coordinator, kafka.delete_groups.DeleteGroupsRequest(groups_names=[group])).results
    _check_change(group, deleted.error_code, "Delete")


def by_topic(offsets: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    """These offsets by the names of topics and the numbers of partitions."""
    topics: dict[str, dict[int, T]] = {}
    for where, offset in offsets.items():
        topics.setdefault(where.topic, {})[where.partition] = offset
    return topics


def target(cluster: Cluster, partitions: Iterable[TopicPartition], place: str) -> dict[TopicPartition, int]:
    """The offset that a place means in each partition, never outside the partition. A place is earliest, latest, an
    offset, or a time such as 2026-01-31T12:00:00Z. As in Kafka's own tool, latest is the end of the partition, also
    where an open transaction holds records back.
    """
    wanted = list(partitions)
    if place == "earliest":
        return _in_order(offsets_of(cluster, wanted, EARLIEST), wanted)
    if _OFFSET.fullmatch(place):
        return within(cluster, dict.fromkeys(wanted, int(place)))
    latest = _in_order(offsets_of(cluster, wanted, LATEST), wanted)
    # A partition without a record from that time on goes to its end.
    return latest if place == "latest" else latest | offsets_of(cluster, wanted, _parse_time(place))


def within(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """These offsets, and of each that is outside its partition the nearest one there."""
    earliest, latest = (_in_order(offsets_of(cluster, offsets, end), list(offsets)) for end in (EARLIEST, LATEST))
    return {where: min(max(offset, earliest[where]), latest[where]) for where, offset in offsets.items()}


def held_back(
    cluster: Cluster, committed: Mapping[TopicPartition, Committed], targets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Where a reset to these targets would skip offsets that open transactions hold back: the last stable offset, and
    how many are skipped. No reader of committed records can read them yet, and this group never would.
    """
    stable = offsets_of(cluster, targets, LATEST, Isolation.READ_COMMITTED)
    skipped = {
        where: target - max(stable[where], committed[where].offset if where in committed else 0)
        for where, target in targets.items()
        if where in stable
    }
    return {where: (stable[where], count) for where, count in sorted(skipped.items()) if count > 0}


def _in_order(offsets: dict[TopicPartition, int], partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    missing = next((where for where in partitions if where not in offsets), None)
    if missing is not None:
        raise LogError(f"the broker does not say where {missing} begins and ends")
    return {where: offsets[where] for where in partitions}


def _parse_time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
        return int(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise LogError(f"{text!r} is neither earliest, latest, an offset nor a time: 2026-01-31T12:00:00Z is") from None


def _check_change(group: str, code: int, operation: str) -> None:
    """The same for a change, which a coordinator refuses as long as the group has members."""
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
        raise RefusedByBroker(f"group {group!r} has members: stop them first ({codes.name_of(code)})", code)
    check(group, code, operation)


def check(group: str, code: int, operation: str) -> None:
    """Raise the error that a code of the group's coordinator means; `operation` is Kafka's name for the right that the
    request needs.
    """
    codes.check_coordinator(f"group {group!r}", code, right=f"{operation} on group {group!r}")
