"""A consumer group of the new protocol (KIP-848): each partition is read by one member.

What a consumer group adds to a group that the broker assigns (`assigned_group`): a member gives up a partition before
another one gets it, members may be static, some may speak the classic protocol, and members commit offsets.
"""

from collections.abc import Iterable
from typing import Final

from semel.log.core.entries import ConsumerGroupChanged, ConsumerPosition, ConsumerSubscription, MembersChanged
from semel.log.core.groups.assigned_group import AssignedGroup
from semel.log.core.groups.assignors import ASSIGNORS, Assignor
from semel.log.core.groups.consumer_members import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    STABLE,
    UNREVOKED,
    Member,
    check_current,
    check_epoch,
    check_said_epoch,
)
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.consumer_topics import preferred_assignor
from semel.log.core.groups.offsets import Committer
from semel.log.core.topics import Catalog
from semel.wire.refusals import (
    FENCED_INSTANCE_ID,
    INVALID_REQUEST,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_VERSION,
    Refused,
)

# The first version of OffsetCommit with a member epoch.
COMMIT_VERSION_MIN: Final = 9


class ConsumerGroup(AssignedGroup):
    """One group. Only `apply` changes its stored state."""

    KIND = "consumer"
    CHANGED = ConsumerGroupChanged

    # Looking up

    @property
    def state_name(self) -> str:
        """The group's state under Kafka's name."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        reconciled = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        return preferred_assignor(self.subscriptions())

    def assignor_of(self, subscriptions: Iterable[ConsumerSubscription]) -> Assignor:
        return ASSIGNORS[preferred_assignor(subscriptions)]

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self._owners.of_instance(instance_id) or "")

    def waits_for_others(self, member: Member) -> bool:
        """Whether another member still holds a partition of this member's target."""
        missing = self.target_of(member.member_id) - member.held
        return self._owners.free_of(missing) != missing

    # Questions about offsets

    def check_commit(self, who: Committer) -> None:
        """Refused unless this member may commit in this epoch.

        An empty group accepts commits of clients that are not members, and every group accepts commits in transactions
        that name no member. A member that does not know its new epoch yet may commit for partitions that it has held
        since before that epoch (KIP-1251).
        """
        names_nobody = who.is_transactional and not who.member_id and who.instance_id is None
        if who.generation_or_epoch < 0 and (not self.members or names_nobody):
            return
        member = self.member(who.member_id)
        if not (who.is_transactional or member.is_classic) and who.version < COMMIT_VERSION_MIN:
            raise Refused(
                UNSUPPORTED_VERSION, f"members of this group commit with version {COMMIT_VERSION_MIN} or later"
            )
        if who.partitions is None or not member.has_had_all(who.partitions, who.generation_or_epoch):
            check_current(member, who.generation_or_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refused if the request names a member, unless that is a member of the group in this epoch."""
        if member_id is not None or member_epoch >= 0:
            check_current(self.member(member_id or ""), member_epoch)

    def check_forget(self) -> None:
        """Offsets may be deleted at any time; `is_subscribed_to` protects those of topics that members read."""

    # Heartbeats

    def _said_to_be(self, beat: Heartbeat) -> Member | None:
        """The member that sends the heartbeat, or the static one that it replaces; None if new. Refused if fenced."""
        instance_id = beat.instance_id
        same = self.members.get(beat.member_id)
        if beat.epoch == JOIN_EPOCH and same is not None and instance_id not in (None, same.subscription.instance_id):
            raise Refused(
                INVALID_REQUEST, f"'{beat.member_id}' is already a member, but not as instance '{instance_id}'"
            )
        member = same if instance_id is None else self.static_member(instance_id)
        if member is None:
            if beat.epoch != JOIN_EPOCH:
                raise Refused(UNKNOWN_MEMBER_ID, f"'{beat.instance_id or beat.member_id}' is no member of this group")
            return None
        if member.member_id != beat.member_id:
            if beat.epoch != JOIN_EPOCH:
                raise Refused(FENCED_INSTANCE_ID, f"instance '{beat.instance_id}' is now member '{member.member_id}'")
            if member.epoch != AWAY_EPOCH and not member.is_classic:
                raise Refused(UNRELEASED_INSTANCE_ID, f"instance '{beat.instance_id}' is still '{member.member_id}'")
            return member
        check_epoch(member, beat.epoch, beat.owned)
        return member

    def going_on_as(self, subscription: ConsumerSubscription, before: Member | None) -> Member:
        """The member with this subscription: the same as before, or a new one that is not in the group yet.

        A member that replaces a static member starts with that member's partitions.
        """
        if before is not None and before.member_id == subscription.member_id:
            return before
        member = Member(subscription)
        if before is not None:
            member.move(before.position._replace(member_id=subscription.member_id, epoch=0, previous_epoch=0), 0)
        return member

    def _check_step(self, member: Member, position: ConsumerPosition, said_epoch: int) -> None:
        check_said_epoch(member, position, said_epoch)

    def _known_as(self, subscription: ConsumerSubscription) -> str:
        return self._owners.of_instance(subscription.instance_id) or subscription.member_id

    # Leaving

    def decide_leave(self, group: str, beat: Heartbeat, catalog: Catalog, now_ms: int) -> MembersChanged:
        """The changes when a member leaves for good, or a static member leaves for a while."""
        if beat.instance_id is None:
            member = self.member(beat.member_id)
        else:
            member = self.member(self._owners.of_instance(beat.instance_id) or "")
            if member.member_id != beat.member_id:
                raise Refused(FENCED_INSTANCE_ID, f"instance '{beat.instance_id}' is now member '{member.member_id}'")
        if beat.epoch != AWAY_EPOCH:
            return self.decide_removal(group, [member.member_id], catalog, now_ms)
        if member.is_classic:
            raise Refused(UNKNOWN_MEMBER_ID, f"'{member.member_id}' speaks the classic protocol: it leaves for good")
        # The member has stopped reading, so it has given up what it had to, and only its session counts.
        away = member.position._replace(epoch=AWAY_EPOCH, previous_epoch=member.epoch, state=STABLE, revoking=())
        return ConsumerGroupChanged(
            group, self.epoch, self.target_epoch, self.topics_digest, (), (), (), (away,), now_ms
        )

    # Members of the classic protocol

    def expect_to_join(self, member_id: str, now_ms: int) -> None:
        """A classic member was told to join again: it has its rebalance timeout to do so."""
        member = self.members[member_id]
        if member.revoke_deadline_ms is None:
            member.revoke_deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
            self._note_deadline(member.revoke_deadline_ms)

    def note_joined(self, member_id: str) -> None:
        """A classic member has joined again. If it must still give up partitions, its deadline stays."""
        member = self.members[member_id]
        if member.position.state != UNREVOKED:
            member.revoke_deadline_ms = None
