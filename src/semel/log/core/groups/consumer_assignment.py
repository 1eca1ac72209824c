"""The assignment of a large group, which is computed in steps, apart from the decisions about heartbeats.

The targets are those for the members and topics at the first step. They are stored in several entries, of which the
last has the target epoch. Members may join and leave meanwhile; nothing here may assume that the group is as it was.
"""

from collections.abc import Mapping

from semel.log.core.entries import ConsumerTarget, MembersChanged
from semel.log.core.groups.assigned_group import AssignedGroup
from semel.log.core.groups.consumer_topics import new_targets, wanted_of
from semel.log.core.groups.partitions import Partitions
from semel.log.core.topics import Catalog
from semel.wire.steps import Steps


def waits_for_assignment(group: AssignedGroup) -> bool:
    """Whether the members, as they are now, have no targets yet. After a heartbeat only a large group is so."""
    return group.epoch > group.target_epoch and not group.is_empty


def assignment(group: AssignedGroup, catalog: Catalog) -> Steps[Mapping[str, Partitions]]:
    """The targets of all members as they are now."""
    subscriptions = {member_id: member.subscription for member_id, member in group.members.items()}
    targets = dict(group.targets)
    topics = group.topics.of_each(subscriptions, catalog)
    topics_wanted = wanted_of(topics, catalog)
    yield len(subscriptions) // 10 + len(topics_wanted) // 10
    assign = group.assignor_of(subscriptions.values())
    return (yield from new_targets(assign, subscriptions, targets, topics, topics_wanted))


def decide_targets(
    group: AssignedGroup, name: str, targets: Mapping[str, Partitions], epoch: int, target_epoch: int, now_ms: int
) -> MembersChanged:
    """The changes that give these members these targets, except those that have left. No member is in the target epoch
    before all have their targets; until then nobody reads what another member still holds.
    """
    differing = [
        ConsumerTarget(member_id, to.spans())
        for member_id, to in targets.items()
        if member_id in group.members and to != group.target_of(member_id)
    ]
    return group.CHANGED(name, epoch, target_epoch, group.topics_digest, (), (), tuple(differing), (), now_ms)
