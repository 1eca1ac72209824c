"""Who owns what in a consumer group: each partition has one member at most, and so has each instance id.

What a step would make of that is judged before the step is written down (`check`), so that nothing is ever in the
journal that cannot be applied: a start would stop at it. Only the group's `apply` changes anything here.
"""

from collections.abc import Mapping

from semel.core.entries import ConsumerGroupChanged, PartitionName
from semel.core.groups.consumer_members import Member


class Owners:
    """The owner of each partition and of each instance id, by member id."""

    __slots__ = ("_of_instance", "_of_partition")

    def __init__(self) -> None:
        self._of_instance: dict[str, str] = {}
        self._of_partition: dict[PartitionName, str] = {}

    def of_instance(self, instance_id: str | None) -> str | None:
        """The member that is this instance."""
        return None if instance_id is None else self._of_instance.get(instance_id)

    def is_free(self, name: PartitionName) -> bool:
        """Whether no member has this partition."""
        return name not in self._of_partition

    # Deciding

    def check(self, entry: ConsumerGroupChanged, members: Mapping[str, Member]) -> None:
        """ValueError unless this step can follow: whom it names is there, and nothing gets a second owner."""
        leaving = set(entry.left)
        for member_id in entry.left:
            if member_id not in members:
                raise ValueError(f"'{member_id}' is no member")
        self._check_instances(entry, leaving)
        self._check_partitions(entry, leaving, members)

    def _check_instances(self, entry: ConsumerGroupChanged, leaving: set[str]) -> None:
        changing = leaving | {subscription[0] for subscription in entry.subscriptions}
        taken: dict[str, str] = {}
        for member_id, instance_id, *_ in entry.subscriptions:
            if instance_id is None:
                continue
            owner = taken.get(instance_id, self._of_instance.get(instance_id))
            if instance_id in taken or not (owner is None or owner in changing):
                raise ValueError(f"instance '{instance_id}' is '{owner}', and not '{member_id}'")
            taken[instance_id] = member_id

    def _check_partitions(self, entry: ConsumerGroupChanged, leaving: set[str], members: Mapping[str, Member]) -> None:
        joining = {subscription[0] for subscription in entry.subscriptions}
        changing = leaving | {position[0] for position in entry.positions}
        taken: dict[PartitionName, str] = {}
        for member_id, _, _, _, held, revoking in entry.positions:
            if member_id not in joining and (member_id in leaving or member_id not in members):
                raise ValueError(f"'{member_id}' is no member")
            for number, partition, _ in (*held, *revoking):
                name = PartitionName(number, partition)
                owner = taken.get(name, self._of_partition.get(name))
                if name in taken or not (owner is None or owner in changing):
                    raise ValueError(
                        f"partition {partition} of topic {number} belongs to '{owner}', and not to '{member_id}'"
                    )
                taken[name] = member_id

    # Applying

    def add_instance(self, member: Member) -> None:
        """A member said which instance it is, if it is one."""
        instance_id = member.subscription.instance_id
        if instance_id is not None:
            self._of_instance[instance_id] = member.member_id

    def forget_instance(self, member: Member) -> None:
        """Nobody is this member's instance any more, unless another member has become it since."""
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._of_instance.get(instance_id) == member.member_id:
            del self._of_instance[instance_id]

    def give(self, member: Member) -> None:
        """The member has what its position says."""
        self._of_partition.update(dict.fromkeys([*member.held, *member.revoking], member.member_id))

    def take_back(self, member: Member) -> None:
        """The member has nothing any more."""
        for name in (*member.held, *member.revoking):
            del self._of_partition[name]
