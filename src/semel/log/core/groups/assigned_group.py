"""A group whose members the broker assigns: what consumer groups (KIP-848) and share groups (KIP-932) have in common.

A group has an epoch, which rises whenever the members, their subscriptions or the subscribed topics change. For a new
epoch an assignor computes the target assignment of all members. Every member moves to its target one heartbeat at a
time (`consumer_members`), and its member epoch says how far it has got; so no member waits for all others.

`decide_...` returns one entry, or None if nothing changes, as for nearly all heartbeats. The changes that a heartbeat
makes are durable. The time of a member's last heartbeat is not: when the broker starts, every member has its whole
session again. Times, ids and topics are arguments. Nothing here may know what only one kind of group does.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from semel.log.core.entries import ConsumerPosition, ConsumerSubscription, ConsumerTarget, MembersChanged
from semel.log.core.groups.assignors import Assignor
from semel.log.core.groups.consumer_members import (
    JOIN_EPOCH,
    Member,
    check_count,
    check_epoch,
    new_subscription,
    next_position,
    position_from,
    subscription_from,
    target_from,
)
from semel.log.core.groups.consumer_owners import Owners
from semel.log.core.groups.consumer_requests import Heartbeat, subscription_bytes, with_what_was_said
from semel.log.core.groups.consumer_topics import Plan, WantedTopics, is_large, new_targets, wanted_of
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.topics import Catalog
from semel.log.core.values import value
from semel.wire.refusals import UNKNOWN_MEMBER_ID, Refused
from semel.wire.steps import finish

_KEPT: Final = ("epoch", "target_epoch", "topics_digest", "subscriptions", "targets", "positions", "at_ms")


@value
class MemberRules:
    """The broker's settings for the members of a group, with Kafka's defaults for consumer groups."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    # The interval while the group is changing: each change takes heartbeats of several members.
    heartbeat_interval_in_motion_ms: int = 500
    lost_connection_session_percent: int = 40
    members_max: int = 2_000


class AssignedGroup:
    """One group. Only `apply` changes its stored state."""

    # Marks a snapshot of this machine, and is the group's type on the wire.
    KIND: ClassVar[str]
    # The type of its entries.
    CHANGED: ClassVar[type[MembersChanged]]

    def __init__(self) -> None:
        self.epoch = 0
        self.target_epoch = 0
        self.topics_digest = ""
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.changed_at_ms = 0
        # About how much memory the members take, without their partitions.
        self.size_bytes = 0
        self.topics = WantedTopics()
        self._owners = Owners()
        # `WantedTopics.changes` when `_digest_now` last computed the digest, and the digest.
        self._digested: tuple[tuple[int, int], str] | None = None
        # Whether the last decision left the target to `assignment`, because the group is large.
        self._is_assigned_later = False
        # The earliest deadline, or a time before it: deadlines move with every heartbeat.
        self._no_deadline_before_ms: int | None = None

    # Looking up

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_stored(self) -> bool:
        """Whether the group outlives the process. It does even without members, because its epoch must."""
        return True

    @property
    def group_type(self) -> str:
        return self.KIND

    @property
    def protocol_type(self) -> str:
        """The protocol type, as in the classic protocol."""
        return self.KIND

    @property
    def assignor(self) -> str:
        """The name of the assignor for the members as they are."""
        raise NotImplementedError

    def assignor_of(self, subscriptions: Iterable[ConsumerSubscription]) -> Assignor:
        """The assignor for members with these subscriptions."""
        raise NotImplementedError

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(UNKNOWN_MEMBER_ID, f"'{member_id}' is no member of this group")
        return member

    def growth_bytes(self, entry: MembersChanged) -> int:
        """By how much the memory of the members would grow with this entry."""
        changing = {subscription.member_id for subscription in entry.subscriptions}.union(entry.left)
        members = [member for member_id in changing if (member := self.members.get(member_id)) is not None]
        before = sum(subscription_bytes(member.subscription) for member in members)
        return sum(map(subscription_bytes, entry.subscriptions)) - before

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def is_subscribed_to(self, topic_name: str) -> bool:
        """Whether a member reads this topic."""
        return any(self.topics.includes(subscription, topic_name) for subscription in self.subscriptions())

    def retention_begins_ms(self, committed_at_ms: int) -> int | None:
        """As in Kafka, an offset of a topic that no member reads ages from its commit, even in a group with members."""
        return committed_at_ms

    # Heartbeats

    def decide_heartbeat(
        self, group: str, beat: Heartbeat, catalog: Catalog, rules: MemberRules, now_ms: int
    ) -> MembersChanged | None:
        """The changes that a heartbeat of a joining or staying member makes."""
        before = self._said_to_be(beat)
        check_count(before, len(self.members), rules.members_max)
        former = new_subscription(beat.member_id, beat.instance_id) if before is None else before.subscription
        subscription = with_what_was_said(former, beat)
        if subscription.topic_regex and not self.topics.is_same_wish(subscription, former):
            self.topics.check_pattern(subscription, self.subscriptions())
        member = self.going_on_as(subscription, before)
        return self.decide_step(group, member, subscription, beat.owned, beat.epoch, catalog, now_ms)

    def _said_to_be(self, beat: Heartbeat) -> Member | None:
        """The member that sends the heartbeat; None if it is new. Refused if fenced."""
        member = self.members.get(beat.member_id)
        if member is not None:
            check_epoch(member, beat.epoch, beat.owned)
        elif beat.epoch != JOIN_EPOCH:
            raise Refused(UNKNOWN_MEMBER_ID, f"'{beat.member_id}' is no member of this group")
        return member

    def going_on_as(self, subscription: ConsumerSubscription, before: Member | None) -> Member:
        """The member with this subscription: the same as before, or a new one that is not in the group yet."""
        return Member(subscription) if before is None else before

    def decide_step(
        self,
        group: str,
        member: Member,
        subscription: ConsumerSubscription,
        owned: Partitions | None,
        said_epoch: int,
        catalog: Catalog,
        now_ms: int,
    ) -> MembersChanged | None:
        """The changes that a heartbeat makes. `member` is the state before it; the heartbeat brings `subscription`."""
        plan = self._plan(member, subscription, catalog)
        target = plan.targets.get(subscription.member_id, self.target_of(subscription.member_id))
        position = next_position(
            member,
            target,
            plan.target_epoch,
            self._owners.free_of,
            owned,
            lambda: self.topics.of(subscription, catalog),
        )
        self._check_step(member, position, said_epoch)
        is_new = self.members.get(subscription.member_id) is not member
        changed = self.CHANGED(
            group,
            plan.epoch,
            plan.target_epoch,
            plan.topics_digest,
            plan.left,
            subscriptions=(subscription,) if is_new or subscription != member.subscription else (),
            targets=tuple([ConsumerTarget(member_id, to.spans()) for member_id, to in plan.targets.items()]),
            positions=(position,) if is_new or position is not member.position else (),
            at_ms=now_ms,
        )
        nothing_new = plan.epoch == self.epoch and not (changed.subscriptions or changed.targets or changed.positions)
        return None if nothing_new else changed

    def _check_step(self, member: Member, position: ConsumerPosition, said_epoch: int) -> None:
        """Refused if a heartbeat from this epoch may not move the member there."""

    def _plan(self, member: Member, subscription: ConsumerSubscription, catalog: Catalog) -> Plan:
        """The group's epochs and targets with this subscription: new ones if a member's topics have changed."""
        is_as_known = member is self.members.get(subscription.member_id) and self.topics.is_same_wish(
            subscription, member.subscription
        )
        has_target = self.epoch == self.target_epoch or self._is_assigned_later
        if is_as_known and has_target and self._digest_now(catalog) == self.topics_digest:
            return Plan(self.epoch, self.target_epoch, self.topics_digest, (), {})
        self.topics.check_names(subscription.topic_names)
        known_as = self._known_as(subscription)
        before = self.members.get(known_as)
        subscriptions = {member_id: other.subscription for member_id, other in self.members.items()}
        subscriptions.pop(known_as, None)
        subscriptions[subscription.member_id] = subscription
        targets: Mapping[str, Partitions]
        targets = {**self.targets, subscription.member_id: self.target_of(known_as)}
        topics = self.topics.of_each(subscriptions, catalog)
        topics_wanted = wanted_of(topics, catalog)
        digest = self.topics.digest_of(topics_wanted, subscriptions, topics)
        wish_is_new = before is None or not self.topics.is_same_wish(subscription, before.subscription)
        epoch = self.epoch + (wish_is_new or digest != self.topics_digest)
        target_epoch = self.target_epoch
        self._is_assigned_later = epoch > target_epoch and is_large(topics, topics_wanted)
        if epoch > target_epoch and not self._is_assigned_later:
            assign = self.assignor_of(subscriptions.values())
            targets = finish(new_targets(assign, subscriptions, targets, topics, topics_wanted))
            target_epoch = epoch
        leavers = (known_as,) if before is not None and known_as != subscription.member_id else ()
        differing = {member_id: to for member_id, to in targets.items() if to != self.target_of(member_id)}
        return Plan(epoch, target_epoch, digest, leavers, differing)

    def _known_as(self, subscription: ConsumerSubscription) -> str:
        """The id of the member that goes on with this subscription."""
        return subscription.member_id

    # Leaving

    def decide_leave(self, group: str, beat: Heartbeat, catalog: Catalog, now_ms: int) -> MembersChanged:
        """The changes when a member leaves."""
        return self.decide_removal(group, [self.member(beat.member_id).member_id], catalog, now_ms)

    def decide_removal(self, group: str, member_ids: Iterable[str], catalog: Catalog, now_ms: int) -> MembersChanged:
        """The changes when these members are removed. The next heartbeat of another member computes the new target."""
        leavers = tuple(member_ids)
        remaining = {one: member.subscription for one, member in self.members.items() if one not in leavers}
        digest = self.topics.digest(remaining, catalog)
        return self.CHANGED(group, self.epoch + 1, self.target_epoch, digest, leavers, (), (), (), now_ms)

    # Deadlines

    def hear(self, member_id: str, rules: MemberRules, now_ms: int) -> None:
        """The member was heard from: its session begins again."""
        member = self.members.get(member_id)
        if member is not None:
            member.hear(rules.session_timeout_ms, now_ms)
            self._note_deadline(member.deadline_ms)

    def connection_lost(self, member_id: str, rules: MemberRules, now_ms: int) -> None:
        """The connection over which a member last spoke was closed: shorten its session."""
        member = self.member(member_id)
        member.lose_connection(rules.session_timeout_ms, rules.lost_connection_session_percent, now_ms)
        self._note_deadline(member.deadline_ms)

    def hear_all(self, rules: MemberRules, now_ms: int) -> None:
        """The broker has started: begin the session of every member, and its time to give up partitions."""
        for member in self.members.values():
            if member.revoke_deadline_ms is not None:
                member.revoke_deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
            self.hear(member.member_id, rules, now_ms)

    def heartbeat_interval_ms(self, rules: MemberRules, now_ms: int) -> int:
        """The time to a member's next heartbeat: short if the group has changed within the usual interval."""
        interval_ms = rules.heartbeat_interval_ms
        # If the change lies in the future, the clock has been set back since.
        is_in_motion = 0 <= now_ms - self.changed_at_ms < interval_ms
        return min(interval_ms, rules.heartbeat_interval_in_motion_ms) if is_in_motion else interval_ms

    def next_deadline_ms(self) -> int | None:
        """When to call `overdue` next; None if no member has a deadline."""
        return self._no_deadline_before_ms

    def overdue(self, now_ms: int) -> list[str]:
        """The members whose session has expired, or that have taken too long to give up partitions."""
        self._no_deadline_before_ms = None
        late = []
        for member in self.members.values():
            deadline_ms = member.deadline_ms
            if deadline_ms is not None and deadline_ms <= now_ms:
                late.append(member.member_id)
            self._note_deadline(deadline_ms)
        return late

    def _note_deadline(self, deadline_ms: int | None) -> None:
        bound_ms = self._no_deadline_before_ms
        if deadline_ms is not None and (bound_ms is None or deadline_ms < bound_ms):
            self._no_deadline_before_ms = deadline_ms

    # Topics

    def _digest_now(self, catalog: Catalog) -> str:
        """A digest of the topics to which the members subscribe, as the topics and the access rules are now."""
        changes = self.topics.changes(catalog)
        if self._digested is None or self._digested[0] != changes:
            subscriptions = {member_id: member.subscription for member_id, member in self.members.items()}
            self._digested = changes, self.topics.digest(subscriptions, catalog)
        return self._digested[1]

    def subscriptions(self) -> Iterable[ConsumerSubscription]:
        """The subscriptions of all members."""
        return (member.subscription for member in self.members.values())

    # Applying

    def check(self, entry: MembersChanged) -> None:
        """ValueError for an entry that cannot follow those before it, in service and in recovery alike."""
        self._owners.check(entry, self.members)

    def apply(self, entry: MembersChanged) -> None:
        """Apply an entry that `check` has accepted."""
        self.epoch = entry.epoch
        self.target_epoch = entry.target_epoch
        self.topics_digest = entry.topics_digest
        self.changed_at_ms = entry.at_ms
        for member_id in entry.left:
            self._remove(member_id)
        for subscription in entry.subscriptions:
            self._subscribe(subscription_from(subscription))
        for member_id, partitions in entry.targets:
            self.targets[member_id] = target_from(partitions)
        positions = [position_from(position) for position in entry.positions]
        for position in positions:
            self._owners.take_back(self.members[position.member_id])
        for position in positions:
            self._move(position, entry.at_ms)
        if entry.left:
            self._is_assigned_later = False
        if entry.left or entry.subscriptions:
            self._digested = None
            self.topics.forget_all_but(self.subscriptions())

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.size_bytes -= subscription_bytes(member.subscription)
        self._owners.take_back(member)
        self._owners.forget_instance(member)
        self.targets.pop(member_id, None)

    def _subscribe(self, subscription: ConsumerSubscription) -> None:
        subscription = self.topics.with_known_names(subscription)
        member = self.members.get(subscription.member_id)
        if member is None:
            member = self.members[subscription.member_id] = Member(subscription)
        else:
            self._owners.forget_instance(member)
            self.size_bytes -= subscription_bytes(member.subscription)
            member.subscription = subscription
        self.size_bytes += subscription_bytes(subscription)
        self._owners.add_instance(member)

    def _move(self, position: ConsumerPosition, at_ms: int) -> None:
        member = self.members[position.member_id]
        member.move(position, at_ms)
        self._owners.give(member)
        self._note_deadline(member.revoke_deadline_ms)

    # Checkpoints

    def as_entry(self, group: str) -> MembersChanged:
        """The entry that gives a new group the state of this one."""
        members = self.members.values()
        return self.CHANGED(
            group,
            self.epoch,
            self.target_epoch,
            self.topics_digest,
            left=(),
            subscriptions=tuple([member.subscription for member in members]),
            targets=tuple([ConsumerTarget(member_id, target.spans()) for member_id, target in self.targets.items()]),
            positions=tuple([member.position for member in members]),
            at_ms=self.changed_at_ms,
        )

    def snapshot(self) -> dict[str, Any]:
        """The stored state, as values that JSON can hold; later changes do not affect it."""
        entry = self.as_entry("")
        return {"kind": self.KIND, **{name: getattr(entry, name) for name in _KEPT}}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Load the state in `snapshot` into a new group."""
        kept = {name: value for name, value in snapshot.items() if name != "kind"}
        entry = self.CHANGED(group="", left=(), **kept)
        self.check(entry)
        self.apply(entry)
