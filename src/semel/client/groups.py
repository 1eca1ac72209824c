"""Offsets of a consumer group, asked for and set from outside of it, as by an administrator.

Each function makes one attempt, over a `Cluster`, at the broker that coordinates the group. It does not join the
group, and must never move a group that has members: the coordinator refuses that.
"""

from collections.abc import Mapping
from typing import NamedTuple

from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.places import TopicPartition
from semel.client.settings import Address
from semel.wire.versions import OFFSET_COMMIT, OFFSET_FETCH


class Committed(NamedTuple):
    """How far a group has come in a partition, and what was noted beside it."""

    offset: int
    note: str


def committed(cluster: Cluster, coordinator: Address, group: str) -> dict[TopicPartition, Committed]:
    """What the group has committed, in every partition in which it has."""
    wanted = {"group_id": group, "topics": None}
    answer = cluster.ask(coordinator, OFFSET_FETCH, **wanted, groups=[wanted], require_stable=False)
    (told,) = getattr(answer, "groups", None) or [answer]
    check(group, told.error_code, "Describe")
    return {
        TopicPartition(topic.name, one.partition_index): Committed(one.committed_offset, one.metadata or "")
        for topic in told.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def commit(
    cluster: Cluster, coordinator: Address, group: str, offsets: Mapping[TopicPartition, int], note: str | None = None
) -> None:
    """Set a group that has no members to these offsets."""
    topics: dict[str, list[dict[str, object]]] = {}
    for where, offset in offsets.items():
        topics.setdefault(where.topic, []).append(
            {"partition_index": where.partition, "committed_offset": offset, "committed_metadata": note}
        )
    answer = cluster.ask(
        coordinator,
        OFFSET_COMMIT,
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        retention_time=-1,
        topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    )
    for topic in answer.topics:
        for one in topic.partitions:
            check(group, one.error_code, "Read")


def check(group: str, code: int, operation: str) -> None:
    """Raise what a code of the group's coordinator means; `operation` is Kafka's name for what was to be done."""
    codes.check_coordinator(f"group {group!r}", code, right=f"{operation} on group {group!r}")
