"""All groups.

They are in the state of the broker with the configurations of groups, which need not exist. `Group` (`group.py`) is one
of them. Only `apply` changes them, and nothing here may know how members are assigned.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from semel.log.core.entries import (
    ClassicGroupChanged,
    ConsumerGroupChanged,
    GroupConfigsChanged,
    GroupDeleted,
    MembersChanged,
    OffsetsCommitted,
    OffsetsForgotten,
    ShareGroupChanged,
    ShareStartsSet,
    ShareStatesChanged,
    StoredOffset,
    TopicDeleted,
    TransactionalOffsets,
    TransactionEnded,
)
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.group import FORGOTTEN_AT_ONCE, Group
from semel.log.core.groups.offsets import Committer, GroupOffsets, Tally, growth
from semel.log.core.groups.share import ShareGroup, ShareTally
from semel.wire.refusals import (
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    OFFSET_METADATA_TOO_LARGE,
    POLICY_VIOLATION,
    Refused,
)
from semel.wire.steps import Steps

# Every checkpoint contains all groups. Client test suites leave fewer than ten thousand behind.
GROUPS_MAX: Final = 10_000
# So the names of all groups take 10 MB at most.
GROUP_NAME_BYTES_MAX: Final = 1_024
# Offsets in one transaction: as many as there are partitions. One entry commits all of them.
TRANSACTION_OFFSETS_MAX: Final = 20_000
# The offsets of all groups together, including pending ones: each takes 250 bytes in memory and 100 in a checkpoint.
GROUP_OFFSETS_MAX: Final = 1_000_000
# The longest metadata of one offset, as in Apache Kafka (offset.metadata.max.bytes, which counts characters too).
METADATA_CHARACTERS_MAX: Final = 4096
# The metadata of all offsets together. Without this limit a million offsets could take 4 GB.
METADATA_CHARACTERS_TOTAL_MAX: Final = 64 * 1024 * 1024

GroupEntry = (
    OffsetsCommitted
    | OffsetsForgotten
    | TransactionalOffsets
    | TransactionEnded
    | ClassicGroupChanged
    | MembersChanged
    | ShareStatesChanged
    | ShareStartsSet
    | GroupConfigsChanged
    | GroupDeleted
    | TopicDeleted
)


class Groups:
    """The groups, by name."""

    def __init__(
        self,
        *,
        groups_max: int = GROUPS_MAX,
        name_bytes_max: int = GROUP_NAME_BYTES_MAX,
        offsets_max: int = GROUP_OFFSETS_MAX,
        transaction_offsets_max: int = TRANSACTION_OFFSETS_MAX,
        metadata_characters_total_max: int = METADATA_CHARACTERS_TOTAL_MAX,
    ) -> None:
        self._groups_max = groups_max
        self._name_bytes_max = name_bytes_max
        self._offsets_max = offsets_max
        self._transaction_offsets_max = transaction_offsets_max
        self._metadata_characters_total_max = metadata_characters_total_max
        self._groups: dict[str, Group] = {}
        # The configurations of groups, by name. The groups need not exist.
        self._configs: dict[str, dict[str, str]] = {}
        self._tally = Tally()
        self.shares = ShareTally()
        # While a snapshot is taken: the groups that are not in it yet, and the copies of those that are.
        self._untaken: dict[str, Group] = {}
        self._snapshots: list[dict[str, Any]] = []

    # Looking up

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    @property
    def offset_count(self) -> int:
        """The offsets of all groups together, including pending ones."""
        return self._tally.offsets

    def named(self, name: str) -> Group | None:
        return self._groups.get(name)

    def existing(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            raise Refused(GROUP_ID_NOT_FOUND, f"there is no group '{name}'")
        return group

    def configs_of(self, name: str) -> Mapping[str, str]:
        """The configurations of the group of this name, which need not exist."""
        return self._configs.get(name, {})

    @property
    def configured(self) -> list[str]:
        """The names of the groups on which configurations are set."""
        return list(self._configs)

    # Deciding

    def decide_configs(self, name: str, configs: Mapping[str, str]) -> GroupConfigsChanged:
        """The entry that makes these the configurations of a group. The caller has checked their values."""
        self._check_name(name)
        if configs and name not in self._configs and len(self._configs) >= self._groups_max:
            raise Refused(
                POLICY_VIOLATION, f"{self._groups_max} groups have configurations, no more are allowed (groups_max)"
            )
        return GroupConfigsChanged(name, dict(configs))

    def check_addable(self, name: str) -> None:
        """Refused if this group does not exist and may not be added."""
        if name in self._groups:
            return
        self._check_name(name)
        if len(self._groups) >= self._groups_max:
            raise Refused(POLICY_VIOLATION, f"there are {self._groups_max} groups, no more are allowed (groups_max)")

    def _check_name(self, name: str) -> None:
        if len(name.encode()) > self._name_bytes_max:
            raise Refused(
                INVALID_GROUP_ID, f"a group's name has at most {self._name_bytes_max} bytes (group_name_bytes_max)"
            )

    def check_commit(self, name: str, who: Committer) -> None:
        """Refused unless the group accepts commits from this sender, which need not be a member."""
        if name in self._groups or who.generation_or_epoch >= 0:
            self.existing(name).check_commit(who)

    def check_offsets(self, name: str, offsets: Sequence[StoredOffset], producer_id: int | None = None) -> None:
        """Refused unless there is space for these offsets, which are pending if a producer is given."""
        self.check_addable(name)
        group = self._groups.get(name)
        table = None if group is None else group.offsets.table_of(producer_id)
        more, more_characters = growth(table, offsets)
        if more > 0 and self._tally.offsets + more > self._offsets_max:
            raise Refused(
                POLICY_VIOLATION, f"groups have {self._offsets_max} offsets, no more are allowed (group_offsets_max)"
            )
        if producer_id is not None and more > 0:
            count = self._tally.of_producers.get(producer_id, 0)
            if count + more > self._transaction_offsets_max:
                raise Refused(
                    POLICY_VIOLATION,
                    f"a transaction has {self._transaction_offsets_max} offsets, no more are allowed "
                    "(transaction_offsets_max)",
                )
        characters = self._tally.metadata_characters + more_characters
        if more_characters > 0 and characters > self._metadata_characters_total_max:
            raise Refused(
                OFFSET_METADATA_TOO_LARGE,
                f"the metadata of all offsets has at most {self._metadata_characters_total_max} characters: "
                "send less of it",
            )

    def decide_commit(
        self, name: str, offsets: Sequence[StoredOffset], now_ms: int, *, retention_ms: int
    ) -> OffsetsCommitted:
        """The entry that commits these offsets. The caller has called `check_commit` before."""
        self.check_offsets(name, offsets)
        return OffsetsCommitted(name, tuple(offsets), retention_ms, now_ms)

    def decide_expiry(
        self, group: Group, now_ms: int, retention_ms: int, topic_name_of: Callable[[int], str]
    ) -> Iterator[OffsetsForgotten | GroupDeleted]:
        """The entries that delete a group's expired offsets, and the group itself if it is then empty.

        The caller applies each entry before it takes the next one, or stops. Other requests may be served in between.
        """
        old = group.offsets.committed.perhaps_too_old(now_ms - retention_ms)
        for first in range(0, len(old), FORGOTTEN_AT_ONCE):
            some = old[first : first + FORGOTTEN_AT_ONCE]
            if self._groups.get(group.name) is group:
                expired = group.expired(some, now_ms, retention_ms, topic_name_of)
                if expired:
                    yield OffsetsForgotten(group.name, tuple(expired))
        if self._groups.get(group.name) is group and group.is_empty and not group.is_kept:
            yield GroupDeleted(group.name)

    # Applying

    def add(self, name: str) -> Group:
        """The group of this name; it is created if it does not exist."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, GroupOffsets(self._tally))
        return group

    def classic(self, name: str) -> ClassicGroup:
        """The group's machine for the classic protocol; the group changes to that protocol if it had another."""
        group = self.add(name)
        if not isinstance(group.machine, ClassicGroup):
            self._before_change(name)
            group.machine = ClassicGroup(name)
        return group.machine

    def consumer(self, name: str) -> ConsumerGroup:
        """The group's machine for the new protocol; the group changes to that protocol if it had another."""
        group = self.add(name)
        if not isinstance(group.machine, ConsumerGroup):
            self._before_change(name)
            group.machine = ConsumerGroup()
        return group.machine

    def share(self, name: str) -> ShareGroup:
        """The group's machine as a share group. A group of another type never becomes one."""
        group = self.add(name)
        if group.machine is None:
            group.machine = ShareGroup(self.shares)
        if not isinstance(group.machine, ShareGroup):
            raise ValueError(f"group '{name}' is no share group")
        return group.machine

    def drop(self, group: Group) -> None:
        """Remove a group that has no members, no offsets and nothing stored."""
        if group.is_empty and not group.offsets and (group.machine is None or not group.machine.is_stored):
            self._before_change(group.name)
            self._groups.pop(group.name, None)

    def check(self, entry: GroupEntry) -> None:
        """ValueError for an entry that cannot follow those before it."""
        if isinstance(entry, ConsumerGroupChanged):
            group = self._groups.get(entry.group)
            machine = None if group is None else group.machine
            (machine if isinstance(machine, ConsumerGroup) else ConsumerGroup()).check(entry)
        elif isinstance(entry, ClassicGroupChanged):
            ClassicGroup.check(entry)
        elif isinstance(entry, ShareGroupChanged | ShareStatesChanged | ShareStartsSet):
            group = self._groups.get(entry.group)
            share = ShareGroup(ShareTally()) if group is None or group.machine is None else group.machine
            if not isinstance(share, ShareGroup):
                raise ValueError(f"group '{entry.group}' is no share group")
            if isinstance(entry, ShareGroupChanged):
                share.check(entry)
            elif isinstance(entry, ShareStatesChanged):
                share.check_states(entry)

    def apply(self, entry: GroupEntry) -> None:
        """Change the groups as an entry says. An entry that ends or removes something of an unknown group has no
        effect.
        """
        if self._tally.waste:
            self._tally.waste.pop()
        if isinstance(entry, TopicDeleted):
            self._leave_topic(entry.number)
            return
        for name in entry.groups if isinstance(entry, TransactionEnded) else (entry.group,):
            self._before_change(name)
        match entry:
            case OffsetsCommitted():
                self.add(entry.group).offsets.commit(entry.offsets, entry.at_ms, entry.retention_ms)
            case TransactionalOffsets():
                self.add(entry.group).offsets.commit_when_ended(entry.producer_id, entry.offsets, entry.at_ms)
            case TransactionEnded():
                for name in entry.groups:
                    if name in self._groups:
                        offsets = self._groups[name].offsets
                        offsets.end_transaction(entry.producer_id, committed=entry.committed)
            case OffsetsForgotten():
                if entry.group in self._groups:
                    self._groups[entry.group].offsets.forget(entry.partitions)
            case ClassicGroupChanged():
                self.classic(entry.group).apply(entry)
            case ConsumerGroupChanged():
                self.consumer(entry.group).apply(entry)
            case ShareGroupChanged():
                self.share(entry.group).apply(entry)
            case ShareStatesChanged():
                self.share(entry.group).apply_states(entry)
            case ShareStartsSet():
                self.share(entry.group).apply_starts(entry)
            case GroupConfigsChanged():
                self._configs.pop(entry.group, None)
                if entry.configs:
                    self._configs[entry.group] = entry.configs
            case GroupDeleted():
                group = self._groups.pop(entry.group, None)
                if group is not None:
                    group.offsets.clear()
                    if isinstance(group.machine, ShareGroup):
                        group.machine.clear()

    def free_waste(self) -> Steps[None]:
        """Free the offsets of deleted topics. Each later entry frees some of them as well."""
        while self._tally.waste:
            yield 1 + len(self._tally.waste.pop()) // 10

    def _leave_topic(self, number: int) -> None:
        """Delete the offsets of all groups in a deleted topic."""
        for group in self._groups.values():
            if group.includes_topic(number):
                self._before_change(group.name)
                group.offsets.forget_topic(number)
                if isinstance(group.machine, ShareGroup):
                    group.machine.forget_topic(number)

    # Checkpoints

    def begin_snapshot(self) -> dict[str, Any]:
        """The whole state as of now, as values that JSON can hold; later changes do not affect it.

        It is complete when `take_all` has ended. There may be ten thousand groups, so they are copied one by one; a
        group that is about to change before its turn is copied at that moment.
        """
        self._untaken, self._snapshots = dict(self._groups), []
        return {"groups": self._snapshots, "configs": dict(self._configs)}

    def end_snapshot(self) -> None:
        """The snapshot is complete, or was given up."""
        self._untaken, self._snapshots = {}, []

    def take_all(self) -> Steps[None]:
        """Copy all groups that are not in the snapshot yet."""
        yield from self.take(list(self._untaken))

    def take_readers(self, number: int) -> Steps[None]:
        """Copy the groups with offsets in a topic before it is deleted. Otherwise they would all be copied at once
        then.
        """
        untaken = self._untaken.values()
        yield from self.take([group.name for group in untaken if group.includes_topic(number)])

    def take(self, names: Iterable[str]) -> Steps[None]:
        """Copy these groups, before all of them change at once."""
        for name in names:
            yield self._before_change(name)

    def _before_change(self, name: str) -> int:
        """Copy the group into the snapshot that is being taken, if it is not there yet; return how many pieces of work
        that took.
        """
        group = self._untaken.pop(name, None)
        if group is None:
            return 0
        record = group.snapshot()
        self._snapshots.append(record)
        members = record["members"] or {}
        partitions = sum(len(target.partitions) for target in members.get("targets", ()))
        topics = len(record["offsets"]["committed"]) // 20 + len(record["offsets"]["pending"])
        runs = sum(len(partition["firsts"]) for *_, partition in members.get("shares", ()))
        return 3 + topics + len(members.get("positions", ())) + (partitions + runs) // 100

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Load the state in `snapshot`. Only for new, empty `Groups`."""
        self._configs = dict(snapshot["configs"])
        for group_fields in snapshot["groups"]:
            group = Group(group_fields["name"], GroupOffsets.restore(group_fields["offsets"], self._tally))
            self._groups[group.name] = group
            members = group_fields["members"]
            kind = None if members is None else members.get("kind")
            if members is not None and kind == ConsumerGroup.KIND:
                self.consumer(group.name).restore(members)
            elif members is not None and kind == ShareGroup.KIND:
                self.share(group.name).restore(members)
            elif members is not None:
                self.classic(group.name).restore(members)
