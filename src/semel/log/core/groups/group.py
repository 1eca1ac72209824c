"""One group: its name, its committed offsets, and the machine of its members.

A group has a name, its committed offsets (`offsets.py`) and, if it has or had members, one of three machines: the
classic protocol (`classic.py`), that of KIP-848 (`consumer.py`), or a share group (`share.py`), which has no offsets.
`Machine` is the part of them that concerns offsets: it says which member may commit, and when an offset begins to
expire. A group without a machine belongs to consumers that assign their partitions themselves and only commit their
offsets here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from semel.log.core.entries import OffsetsForgotten, PartitionName
from semel.log.core.groups.offsets import CommittedOffset, Committer, GroupOffsets
from semel.log.core.groups.share import ShareGroup
from semel.wire.refusals import GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_MEMBER_ID, Refused

# Offsets in one entry that forgets them.
FORGOTTEN_AT_ONCE: Final = 500


class Machine(Protocol):
    """What the rules about offsets need to know about a group's members."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""

    def check_commit(self, who: Committer) -> None:
        """Refused unless this sender may commit."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refused if the request names a member that the group does not have."""

    def check_forget(self) -> None:
        """Refused if no offset of this group may be deleted now."""

    def is_subscribed_to(self, topic_name: str) -> bool:
        """Whether a member reads this topic, as far as that is known."""

    def retention_begins_ms(self, committed_at_ms: int) -> int | None:
        """The time from which an offset in a topic that no member reads is kept for the retention time; None while a
        member may read any topic.
        """

    @property
    def group_type(self) -> str:
        """The protocol of the members: `classic`, `consumer` or `share`."""

    @property
    def state_name(self) -> str:
        """The group's state, with Kafka's name."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type that the members sent."""

    @property
    def is_stored(self) -> bool:
        """Whether the group outlives the process."""

    def snapshot(self) -> dict[str, Any]: ...


class Group:
    """One group. Only `Groups.apply` changes its offsets."""

    __slots__ = ("machine", "name", "offsets")

    def __init__(self, name: str, offsets: GroupOffsets) -> None:
        self.name = name
        self.offsets = offsets
        self.machine: Machine | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return self.machine is None or self.machine.is_empty

    @property
    def is_left(self) -> bool:
        """Whether it had members, and has none now."""
        return self.machine is not None and self.machine.is_empty

    @property
    def is_kept(self) -> bool:
        """Whether it must not be deleted because nobody uses it: it has offsets, or is a share group."""
        return bool(self.offsets) or isinstance(self.machine, ShareGroup)

    def check_commit(self, who: Committer) -> None:
        if self.machine is not None:
            self.machine.check_commit(who)
        elif who.generation_or_epoch >= 0:
            raise Refused(UNKNOWN_MEMBER_ID, f"group '{self.name}' has no members")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.machine is not None:
            self.machine.check_fetch(member_id, member_epoch)

    def check_forget(self) -> None:
        if self.machine is not None:
            self.machine.check_forget()

    def is_subscribed_to(self, topic_name: str) -> bool:
        return self.machine is not None and self.machine.is_subscribed_to(topic_name)

    def includes_topic(self, number: int) -> bool:
        """Whether the group has an offset or a share partition in this topic."""
        return self.offsets.includes_topic(number) or (
            isinstance(self.machine, ShareGroup) and self.machine.includes_topic(number)
        )

    def decide_forget(self, topic_name: str, partitions: Sequence[PartitionName]) -> OffsetsForgotten | None:
        """The entry that deletes these offsets of one topic on request; None if there is none to delete. `at_once` says
        how many they should be.
        """
        if self.is_subscribed_to(topic_name):
            raise Refused(GROUP_SUBSCRIBED_TO_TOPIC, f"group '{self.name}' reads topic '{topic_name}'")
        existing = dict.fromkeys([name for name in partitions if self.offsets.count_at(name)])
        return OffsetsForgotten(self.name, tuple(existing)) if existing else None

    def at_once(self, partitions: Sequence[PartitionName]) -> int:
        """How many of these partitions, from the first one on, one entry may forget. A partition may have an offset in
        each of thousands of open transactions.
        """
        offset_count = 0
        for place, name in enumerate(partitions[:FORGOTTEN_AT_ONCE]):
            offset_count += self.offsets.count_at(name)
            if offset_count >= FORGOTTEN_AT_ONCE:
                return place + 1
        return min(len(partitions), FORGOTTEN_AT_ONCE)

    def expired(
        self, among: Iterable[PartitionName], now_ms: int, retention_ms: int, topic_name_of: Callable[[int], str]
    ) -> list[PartitionName]:
        """Those of these partitions whose offsets have expired."""
        offsets = self.offsets
        old = [
            name
            for name in among
            if (offset := offsets.committed.get(name)) is not None
            and self._is_too_old(offset, now_ms, retention_ms)
            and not offsets.is_pending(name)
        ]
        unread = {number for number, _ in old if not self.is_subscribed_to(topic_name_of(number))}
        return [name for name in old if name.number in unread]

    def _is_too_old(self, offset: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        begins_ms = offset.at_ms if self.machine is None else self.machine.retention_begins_ms(offset.at_ms)
        if begins_ms is None:
            return False
        if offset.retention_ms >= 0:
            # A retention time that the client asked for begins with the commit.
            return now_ms >= offset.at_ms + offset.retention_ms
        # Kafka counts only from the time at which the group became empty. So if a person sets the offsets of a group
        # that was empty for a week, Kafka deletes them within the hour.
        return now_ms - max(begins_ms, offset.at_ms) >= retention_ms

    def snapshot(self) -> dict[str, Any]:
        members = self.machine.snapshot() if self.machine is not None and self.machine.is_stored else None
        return {"name": self.name, "offsets": self.offsets.snapshot(), "members": members}
