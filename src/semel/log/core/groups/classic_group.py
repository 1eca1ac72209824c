"""A group of the classic protocol: its members, its generation, the stored part of both, and questions about it.

It decides whether offsets may be committed or deleted, and when they begin to age. `classic` has the steps that change
a group; this file must never change a group except by an entry.
"""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from semel.log.core.entries import ClassicGroupChanged, StoredMember
from semel.log.core.groups.classic_members import MEMBER_BYTES, Member, Members
from semel.log.core.groups.classic_steps import NO_MEMBER_ID
from semel.log.core.groups.consumer_protocol import subscribed_topics
from semel.log.core.groups.offsets import Committer
from semel.wire import refusals
from semel.wire.refusals import Refused

# The protocol type of consumers, whose metadata name topics.
CONSUMER: Final = "consumer"


class State(StrEnum):
    """The states of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Rebalance:
    """The rebalance under way: the members that the group waits for, and the deadlines. None of this is stored."""

    # Whether the group was empty before this rebalance: then the first members wait for others to start.
    is_initial: bool = False
    newcomer_seen: bool = False
    delay_ms: int = 0
    extension_ms: int = 0
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    sync_awaited: set[str] = field(default_factory=set)


class ClassicGroup:
    """One group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        # The ids given to new members that have not yet joined with them, and their deadlines.
        self.expected: dict[str, int] = {}
        self.rebalance = Rebalance()
        self._stored: ClassicGroupChanged | None = None
        # The topics of all members, read on demand once in a generation: there may be two thousand members.
        self._topics: frozenset[str] | None = None
        self._topics_read_in: int | None = None

    # -- what is stored -----------------------------------------------------------------------------------------

    @staticmethod
    def check(entry: ClassicGroupChanged) -> None:
        """ValueError for an entry that cannot be true of any group."""
        members = [StoredMember(*values) for values in entry.members]
        ids = {member.member_id for member in members}
        static = [member.instance_id for member in members if member.instance_id is not None]
        if len(ids) < len(members) or len(set(static)) < len(static):
            raise ValueError("two members have the same id or the same instance id")
        if entry.leader is not None and entry.leader not in ids:
            raise ValueError(f"'{entry.leader}' leads the group, but is no member of it")

    def apply(self, entry: ClassicGroupChanged) -> None:
        """Replace the group's members by those of an entry. A member that is known and unchanged keeps its `Member`.

        During a rebalance, an entry of the stored generation changes only what is stored (`to_store_instead`).
        """
        before, self._stored = self._stored, entry
        is_rebalancing = self.state is not State.STABLE and before is not None and bool(before.members)
        if is_rebalancing and before is not None and entry.generation == before.generation:
            return
        members_before = self.members
        self.members = Members()
        for values in entry.members:
            stored = StoredMember(*values)
            member = members_before.get(stored.member_id)
            if member is None or member.stored != stored:
                member = Member.restored(stored, entry.protocol or "")
            member.take_assignment(stored)
            self.members.add(member)
        self.members.leader = entry.leader
        self.generation = entry.generation
        self.protocol_type = entry.protocol_type
        self.protocol = entry.protocol
        self.state = State.STABLE if entry.members else State.EMPTY

    def begin(self, now_ms: int) -> None:
        """The broker has started: begin the session of every member."""
        for member in self.members:
            self.hear(member, now_ms)

    @property
    def is_to_rebalance(self) -> bool:
        """Whether the group has members but no leader, as after a change from the new protocol: they must
        join again.
        """
        return bool(len(self.members)) and self.members.leader is None

    @property
    def is_stored(self) -> bool:
        """Whether the group outlives the process."""
        return self._stored is not None

    def snapshot(self) -> dict[str, Any]:
        """The last entry, as values that a checkpoint can hold."""
        entry = self._stored
        if entry is None:
            raise ValueError("the group has never been stored")
        return {
            "generation": entry.generation,
            "protocol_type": entry.protocol_type,
            "protocol": entry.protocol,
            "leader": entry.leader,
            "members": entry.members,
            "at_ms": entry.at_ms,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Load the state in `snapshot`, which was written to a checkpoint and read again: it has bytes in base64."""
        members = tuple(
            StoredMember._make((*values, b64decode(subscription), b64decode(assignment)))
            for *values, subscription, assignment in snapshot["members"]
        )
        self.apply(ClassicGroupChanged(self.name, **{**snapshot, "members": members}))

    def to_store(self, assignments: Mapping[str, bytes], now_ms: int) -> ClassicGroupChanged:
        """The entry that makes these the assignments of the generation."""
        protocol = self.protocol or ""
        return ClassicGroupChanged(
            self.name,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader,
            tuple(member.to_store(protocol, assignments.get(member.member_id, b"")) for member in self.members),
            now_ms,
        )

    def to_store_instead(self, instance_id: str, member_id: str, now_ms: int) -> ClassicGroupChanged | None:
        """The entry that gives a static member of the stored generation another id; None if it is not in it."""
        entry = self._stored
        members = () if entry is None else tuple(StoredMember(*values) for values in entry.members)
        old_id = next((one.member_id for one in members if one.instance_id == instance_id), None)
        if entry is None or old_id is None:
            return None
        return replace(
            entry,
            leader=member_id if entry.leader == old_id else entry.leader,
            members=tuple(one._replace(member_id=member_id) if one.member_id == old_id else one for one in members),
            at_ms=now_ms,
        )

    # -- asking -------------------------------------------------------------------------------------------------

    def member(self, member_id: str, instance_id: str | None) -> Member:
        if self.state is State.DEAD:
            raise Refused(refusals.COORDINATOR_NOT_AVAILABLE, "the group is gone")
        if instance_id is not None:
            owner = self.members.of_instance(instance_id)
            if owner is not None and owner.member_id != member_id:
                raise Refused(refusals.FENCED_INSTANCE_ID, "another process has taken this instance id")
            if owner is None:
                raise Refused(refusals.UNKNOWN_MEMBER_ID, "no member has this instance id")
        member = self.members.get(member_id)
        if member is None:
            raise Refused(refusals.UNKNOWN_MEMBER_ID, "no member has this id")
        return member

    def member_of_generation(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self.member(member_id, instance_id)
        if generation != self.generation:
            raise Refused(
                refusals.ILLEGAL_GENERATION, f"the group is in generation {self.generation}, not in {generation}"
            )
        return member

    def hear(self, member: Member, now_ms: int) -> None:
        """The member was heard from: its session begins again."""
        member.deadline_ms = now_ms + member.session_timeout_ms
        member.has_lost_connection = False

    def check_commit(self, who: Committer) -> None:
        """`Refused` unless this sender may commit offsets for the group now."""
        if self.state is State.DEAD:
            raise Refused(refusals.COORDINATOR_NOT_AVAILABLE, "the group is gone")
        if who.generation_or_epoch < 0 and self.state is State.EMPTY:
            return
        if who.generation_or_epoch >= 0 or who.member_id != NO_MEMBER_ID or who.instance_id is not None:
            self.member_of_generation(who.member_id, who.instance_id, who.generation_or_epoch)
        elif not who.is_transactional:
            raise Refused(refusals.UNKNOWN_MEMBER_ID, "the group has members, and only they may commit")
        if not who.is_transactional and self.state is State.COMPLETING_REBALANCE:
            raise Refused(refusals.REBALANCE_IN_PROGRESS, "the generation has no assignments yet")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Any client may fetch the offsets of a classic group."""
        if self.state is State.DEAD:
            raise Refused(refusals.GROUP_ID_NOT_FOUND, "the group is gone")

    def check_forget(self) -> None:
        """`Refused` if the members are not consumers, because the broker cannot know which offsets they use."""
        if self.state is State.DEAD:
            raise Refused(refusals.GROUP_ID_NOT_FOUND, "the group is gone")
        if self.state is not State.EMPTY and self.protocol_type != CONSUMER:
            raise Refused(refusals.NON_EMPTY_GROUP, "the members are not consumers, and may use any of the offsets")

    @property
    def group_type(self) -> str:
        return "classic"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether there are no members, and no client is about to join."""
        return self.state in (State.EMPTY, State.DEAD) and not self.expected

    @property
    def size_bytes(self) -> int:
        """About how much memory the group takes."""
        return self.members.size_bytes + sum(map(self.expected_bytes, self.expected))

    def expected_bytes(self, member_id: str) -> int:
        """The part of `size_bytes` for an id whose client has not yet joined with it."""
        return MEMBER_BYTES + len(member_id) if member_id in self.expected else 0

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics to which the members of a consumer group subscribe; None if a subscription cannot be read."""
        if self._topics_read_in != self.generation:
            self._topics = self._read_subscriptions()
            self._topics_read_in = self.generation
        return self._topics

    def _read_subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        topics: frozenset[str] = frozenset()
        for member in self.members:
            asked_for = subscribed_topics(member.protocols.get(self.protocol or "", b""))
            if asked_for is None:
                return None
            topics |= asked_for
        return topics

    def is_subscribed_to(self, topic_name: str) -> bool:
        """Whether a member subscribes to this topic. If a subscription cannot be read, it may be to any topic."""
        topics = self.subscribed_topics()
        return self.protocol_type == CONSUMER if topics is None else topic_name in topics

    def retention_begins_ms(self, committed_at_ms: int) -> int | None:
        """The time from which an offset in a topic that no member reads is kept for the retention time; None while a
        member may read any topic.
        """
        if self.protocol_type is None:
            return committed_at_ms
        if self.state is State.EMPTY:
            return committed_at_ms if self._stored is None else self._stored.at_ms
        is_known = self.state is State.STABLE and self.subscribed_topics() is not None
        return committed_at_ms if is_known else None
