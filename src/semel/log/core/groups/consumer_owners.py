"""The owners in a consumer group: each partition, and each instance id, belongs to one member at most.

`check` judges a step before it is written to the journal. The journal must never hold an entry that cannot be applied,
because the broker could not start again. Only the group's `apply` changes anything here.
"""

from collections.abc import Iterator, Mapping

from semel.log.core.entries import MembersChanged
from semel.log.core.groups.consumer_members import Member, partitions_of, position_from
from semel.log.core.groups.partitions import Partitions


class Owners:
    """The member id that owns each instance id, and the partitions that have an owner."""

    __slots__ = ("_of_instance", "_owned")

    def __init__(self) -> None:
        self._of_instance: dict[str, str] = {}
        # By topic, as the bits of `Partitions`.
        self._owned: dict[int, int] = {}

    def of_instance(self, instance_id: str | None) -> str | None:
        """The member that is this instance."""
        return None if instance_id is None else self._of_instance.get(instance_id)

    def free_of(self, partitions: Partitions) -> Partitions:
        """Those of these partitions that no member holds."""
        return partitions - Partitions(self._owned)

    # Deciding

    def check(self, entry: MembersChanged, members: Mapping[str, Member]) -> None:
        """ValueError unless the members that this step names exist and nothing gets a second owner."""
        leaving = set(entry.left)
        for member_id in entry.left:
            if member_id not in members:
                raise ValueError(f"'{member_id}' is no member")
        self._check_instances(entry, leaving)
        self._check_partitions(entry, leaving, members)

    def _check_instances(self, entry: MembersChanged, leaving: set[str]) -> None:
        changing = leaving | {subscription[0] for subscription in entry.subscriptions}
        claimants: dict[str, str] = {}
        for member_id, instance_id, *_ in entry.subscriptions:
            if instance_id is None:
                continue
            owner = claimants.get(instance_id, self._of_instance.get(instance_id))
            if instance_id in claimants or not (owner is None or owner in changing):
                raise ValueError(f"instance '{instance_id}' is '{owner}', and not '{member_id}'")
            claimants[instance_id] = member_id

    def _check_partitions(self, entry: MembersChanged, leaving: set[str], members: Mapping[str, Member]) -> None:
        joining = {subscription[0] for subscription in entry.subscriptions}
        changing = leaving | {position[0] for position in entry.positions}
        present = [members[member_id] for member_id in changing if member_id in members]
        given_back = Partitions.union(those for member in present for those in (member.held, member.revoking))
        by_member: dict[str, Partitions] = {}
        new_owners: dict[int, int] = {}
        for position in map(position_from, entry.positions):
            member_id = position.member_id
            if member_id not in joining and (member_id in leaving or member_id not in members):
                raise ValueError(f"'{member_id}' is no member")
            partitions = partitions_of(position)
            if len(partitions) != sum(span.end - span.begin for span in (*position.held, *position.revoking)):
                raise ValueError(f"'{member_id}' has a partition twice")
            for name in (partitions & Partitions(new_owners)) | ((partitions - given_back) & Partitions(self._owned)):
                owner = next(owner for owner, those in (*by_member.items(), *_had_by(members)) if name in those)
                raise ValueError(
                    f"partition {name.partition} of topic {name.number} belongs to '{owner}', and not to '{member_id}'"
                )
            by_member[member_id] = partitions
            _add(new_owners, partitions)

    # Applying

    def add_instance(self, member: Member) -> None:
        """Note the instance id of a member, if it has one."""
        instance_id = member.subscription.instance_id
        if instance_id is not None:
            self._of_instance[instance_id] = member.member_id

    def forget_instance(self, member: Member) -> None:
        """Forget the instance id of a member, unless another member has taken it since."""
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._of_instance.get(instance_id) == member.member_id:
            del self._of_instance[instance_id]

    def give(self, member: Member) -> None:
        """The member now holds the partitions in its position."""
        _add(self._owned, member.held)
        _add(self._owned, member.revoking)

    def take_back(self, member: Member) -> None:
        """The member no longer holds any partition."""
        for partitions in (member.held, member.revoking):
            for number, bits in partitions.by_topic().items():
                self._owned[number] &= ~bits
                if not self._owned[number]:
                    del self._owned[number]


class NoOwners(Owners):
    """The same in a share group, where any number of members may have a partition."""

    __slots__ = ()

    def free_of(self, partitions: Partitions) -> Partitions:
        return partitions

    def _check_partitions(self, entry: MembersChanged, leaving: set[str], members: Mapping[str, Member]) -> None:
        joining = {subscription[0] for subscription in entry.subscriptions}
        for member_id, *_ in entry.positions:
            if member_id not in joining and (member_id in leaving or member_id not in members):
                raise ValueError(f"'{member_id}' is no member")

    def give(self, member: Member) -> None:
        pass

    def take_back(self, member: Member) -> None:
        pass


def _had_by(members: Mapping[str, Member]) -> Iterator[tuple[str, Partitions]]:
    return ((member_id, member.held | member.revoking) for member_id, member in members.items())


def _add(owned: dict[int, int], partitions: Partitions) -> None:
    for number, bits in partitions.by_topic().items():
        owned[number] = owned.get(number, 0) | bits
