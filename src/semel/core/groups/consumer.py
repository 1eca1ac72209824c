"""A consumer group of the new protocol (KIP-848): the broker assigns, and each member gets to its target by itself.

A group has an epoch, which rises whenever something changes that the assignment depends on: members, subscriptions, or
the topics they mean. From it follows a target, made by an assignor for all members at once, with the epoch it was made
for. Every member goes its own way to its target, one heartbeat at a time (`consumer_members`), and its epoch says how
far it is; so nobody waits for everybody.

Deciding answers one entry, or None if nothing changes, as with nearly all heartbeats. What a heartbeat changes is
durable. The time at which a member was last heard is not: when the process starts, every member has its whole session.
Time, ids and topics come in as arguments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from semel.core.entries import (
    ConsumerGroupChanged,
    ConsumerPosition,
    ConsumerSubscription,
    ConsumerTarget,
)
from semel.core.groups.committing import Committer
from semel.core.groups.consumer_members import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    UNREVOKED,
    Member,
    check_current,
    check_epoch,
    check_said_epoch,
    new_subscription,
    next_position,
    position_from,
    subscription_from,
    target_from,
)
from semel.core.groups.consumer_owners import Owners
from semel.core.groups.consumer_requests import Heartbeat, subscription_bytes, with_what_was_said
from semel.core.groups.consumer_topics import (
    WantedTopics,
    digest_of,
    is_same_wish,
    new_targets,
    preferred_assignor,
    wanted_of,
)
from semel.core.groups.partitions import NOTHING, Partitions
from semel.core.refusals import (
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    INVALID_REQUEST,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_VERSION,
    Refused,
)
from semel.core.topics import Catalog

# How a snapshot of this machine is told from one of the classic protocol.
KIND: Final = "consumer"
_KEPT: Final = ("epoch", "target_epoch", "topics_digest", "subscriptions", "targets", "positions", "at_ms")
# The first version of OffsetCommit that says which member epoch it means.
COMMIT_VERSION_MIN: Final = 9


@dataclass(frozen=True, slots=True)
class ConsumerRules:
    """The broker's settings for these groups, with Kafka's defaults (group.consumer.*)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    # What members are told instead while others come and go: each change takes a heartbeat of several members.
    heartbeat_interval_in_motion_ms: int = 500
    lost_connection_session_percent: int = 40
    members_max: int = 2_000


class _Plan(NamedTuple):
    """The group's epochs and targets after a step; of the targets, those that differ from what they were."""

    epoch: int
    target_epoch: int
    topics_digest: str
    left: tuple[str, ...]
    targets: Mapping[str, Partitions]


class ConsumerGroup:
    """One group. Only `apply` changes what is kept of it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.target_epoch = 0
        self.topics_digest = ""
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.changed_at_ms = 0
        # About what the members take in memory, whatever they read.
        self.size_bytes = 0
        self.topics = WantedTopics()
        self._owners = Owners()
        # What was concluded from the catalog and the members as they are, and for which state of the catalog.
        self._digested: tuple[int, str] | None = None
        # Not after the earliest deadline there is, but perhaps before: deadlines move to later with every heartbeat.
        self._no_deadline_before_ms: int | None = None

    # Looking up

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_stored(self) -> bool:
        """Whether anything about the members outlives the process: the epoch does, even without members."""
        return True

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
    def group_type(self) -> str:
        return KIND

    @property
    def protocol_type(self) -> str:
        """What kind of members there are, as the classic protocol calls it."""
        return KIND

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        return preferred_assignor(self.subscriptions())

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(UNKNOWN_MEMBER_ID, f"'{member_id}' is no member of this group")
        return member

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self._owners.of_instance(instance_id) or "")

    def waits_for_others(self, member: Member) -> bool:
        """Whether another member still has a partition of this member's target."""
        missing = self.target_of(member.member_id) - member.held
        return self._owners.free_of(missing) != missing

    def growth_bytes(self, entry: ConsumerGroupChanged) -> int:
        """The memory that the members would take more after this entry."""
        known = [self.members.get(subscription.member_id) for subscription in entry.subscriptions]
        before = sum(subscription_bytes(member.subscription) for member in known if member is not None)
        return sum(map(subscription_bytes, entry.subscriptions)) - before

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def is_subscribed_to(self, topic_name: str) -> bool:
        """Whether a member reads this topic."""
        return any(self.topics.includes(subscription, topic_name) for subscription in self.subscriptions())

    # What the group's offsets ask

    def check_commit(self, who: Committer) -> None:
        """Refused unless this member may commit in this epoch.

        An empty group takes commits from clients that are no members, and any group takes those in transactions that
        name no member. A member that has not been told its new epoch yet may commit for the partitions that it has had
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
        """Refused if the request names a member, and that is no member in this epoch."""
        if member_id is not None or member_epoch >= 0:
            check_current(self.member(member_id or ""), member_epoch)

    def check_forget(self) -> None:
        """Offsets of topics that nobody reads may be deleted at any time."""

    def retention_begins_ms(self, committed_at_ms: int) -> int | None:
        """As in Kafka, an offset of a topic that nobody reads ages from its commit, even if the group has members."""
        return committed_at_ms

    # Heartbeats

    def decide_heartbeat(
        self, group: str, beat: Heartbeat, catalog: Catalog, rules: ConsumerRules, now_ms: int
    ) -> ConsumerGroupChanged | None:
        """What a heartbeat of a member that stays or joins changes."""
        if len(self.members) >= rules.members_max and beat.member_id not in self.members:
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the group has {rules.members_max} members, no more are allowed")
        before = self._said_to_be(beat)
        known = new_subscription(beat.member_id, beat.instance_id) if before is None else before.subscription
        subscription = with_what_was_said(known, beat)
        if subscription.topic_regex and subscription.topic_regex != known.topic_regex:
            self.topics.check_pattern(subscription.topic_regex, self.subscriptions())
        member = self.going_on_as(subscription, before)
        return self.decide_step(group, member, subscription, beat.owned, beat.epoch, catalog, now_ms)

    def _said_to_be(self, beat: Heartbeat) -> Member | None:
        """The member that sends a heartbeat, or whose place it takes; None for one that is new. Refused if fenced."""
        instance_id = beat.instance_id
        known = self.members.get(beat.member_id)
        if beat.epoch == JOIN_EPOCH and known is not None and instance_id not in (None, known.subscription.instance_id):
            raise Refused(
                INVALID_REQUEST, f"'{beat.member_id}' is a member already, and not as instance '{instance_id}'"
            )
        member = known if instance_id is None else self.static_member(instance_id)
        if member is None:
            if beat.epoch != JOIN_EPOCH:
                raise Refused(UNKNOWN_MEMBER_ID, f"'{beat.instance_id or beat.member_id}' is no member of this group")
            return None
        if member.member_id != beat.member_id:
            if beat.epoch != JOIN_EPOCH:
                raise Refused(FENCED_INSTANCE_ID, f"instance '{beat.instance_id}' goes on as '{member.member_id}'")
            if member.epoch != AWAY_EPOCH and not member.is_classic:
                raise Refused(UNRELEASED_INSTANCE_ID, f"instance '{beat.instance_id}' is '{member.member_id}' still")
            return member
        check_epoch(member, beat.epoch, beat.owned)
        return member

    def going_on_as(self, subscription: ConsumerSubscription, before: Member | None) -> Member:
        """The member that says this: the one it was before, or one that is not in the group yet.

        A member that takes a static member's place goes on where that one was.
        """
        if before is not None and before.member_id == subscription.member_id:
            return before
        member = Member(subscription)
        if before is not None:
            member.move(before.position._replace(member_id=subscription.member_id, epoch=0, previous_epoch=0), 0)
        return member

    def decide_step(
        self,
        group: str,
        member: Member,
        subscription: ConsumerSubscription,
        owned: Partitions | None,
        said_epoch: int,
        catalog: Catalog,
        now_ms: int,
    ) -> ConsumerGroupChanged | None:
        """What a heartbeat changes; `member` is the member before it, `subscription` what the member says now."""
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
        check_said_epoch(member, position, said_epoch)
        is_new = self.members.get(subscription.member_id) is not member
        changed = ConsumerGroupChanged(
            group,
            plan.epoch,
            plan.target_epoch,
            plan.topics_digest,
            plan.left,
            subscriptions=(subscription,) if is_new or subscription != member.subscription else (),
            targets=tuple([ConsumerTarget(member_id, tuple(to.spans())) for member_id, to in plan.targets.items()]),
            positions=(position,) if is_new or position is not member.position else (),
            at_ms=now_ms,
        )
        nothing_new = plan.epoch == self.epoch and not (changed.subscriptions or changed.targets or changed.positions)
        return None if nothing_new else changed

    def _plan(self, member: Member, subscription: ConsumerSubscription, catalog: Catalog) -> _Plan:
        """The group's epochs and targets after a member has said this: new ones if what it wants is new."""
        is_as_known = member is self.members.get(subscription.member_id) and is_same_wish(
            subscription, member.subscription
        )
        if is_as_known and self.epoch == self.target_epoch and self._digest_now(catalog) == self.topics_digest:
            return _Plan(self.epoch, self.target_epoch, self.topics_digest, (), {})
        known_as = self._owners.of_instance(subscription.instance_id) or subscription.member_id
        known = self.members.get(known_as)
        subscriptions = {member_id: other.subscription for member_id, other in self.members.items()}
        subscriptions.pop(known_as, None)
        subscriptions[subscription.member_id] = subscription
        targets: Mapping[str, Partitions]
        targets = {**self.targets, subscription.member_id: self.target_of(known_as)}
        topics = self.topics.of_each(subscriptions, catalog)
        wanted = wanted_of(topics, catalog)
        digest = digest_of(wanted)
        wish_is_new = known is None or not is_same_wish(subscription, known.subscription)
        epoch = self.epoch + (wish_is_new or digest != self.topics_digest)
        target_epoch = self.target_epoch
        if epoch > target_epoch:
            targets = new_targets(subscriptions, targets, topics, wanted)
            target_epoch = epoch
        left = (known_as,) if known is not None and known_as != subscription.member_id else ()
        differing = {member_id: to for member_id, to in targets.items() if to != self.target_of(member_id)}
        return _Plan(epoch, target_epoch, digest, left, differing)

    # Leaving

    def decide_leave(self, group: str, beat: Heartbeat, catalog: Catalog, now_ms: int) -> ConsumerGroupChanged:
        """What changes as a member says that it leaves, for good or, being static, for a while."""
        if beat.instance_id is None:
            member = self.member(beat.member_id)
        else:
            member = self.member(self._owners.of_instance(beat.instance_id) or "")
            if member.member_id != beat.member_id:
                raise Refused(FENCED_INSTANCE_ID, f"instance '{beat.instance_id}' goes on as '{member.member_id}'")
        if beat.epoch != AWAY_EPOCH:
            return self.decide_removal(group, [member.member_id], catalog, now_ms)
        if member.is_classic:
            raise Refused(UNKNOWN_MEMBER_ID, f"'{member.member_id}' speaks the classic protocol, where nobody is away")
        away = member.position._replace(epoch=AWAY_EPOCH, previous_epoch=member.epoch, revoking=())
        return ConsumerGroupChanged(
            group, self.epoch, self.target_epoch, self.topics_digest, (), (), (), (away,), now_ms
        )

    def decide_removal(
        self, group: str, member_ids: Iterable[str], catalog: Catalog, now_ms: int
    ) -> ConsumerGroupChanged:
        """What changes as these members are gone. The next heartbeat of another makes the new target."""
        left = tuple(member_ids)
        remaining = {one: member.subscription for one, member in self.members.items() if one not in left}
        digest = digest_of(self.topics.wanted(remaining, catalog))
        return ConsumerGroupChanged(group, self.epoch + 1, self.target_epoch, digest, left, (), (), (), now_ms)

    # Deadlines

    def hear(self, member_id: str, rules: ConsumerRules, now_ms: int) -> None:
        """A member was heard: its session begins again."""
        member = self.members.get(member_id)
        if member is not None:
            member.hear(rules.session_timeout_ms, now_ms)
            self._note_deadline(member.deadline_ms)

    def connection_lost(self, member_id: str, rules: ConsumerRules, now_ms: int) -> None:
        """The connection over which a member was heard last is gone: it has less time to be heard."""
        member = self.member(member_id)
        member.lose_connection(rules.session_timeout_ms, rules.lost_connection_session_percent, now_ms)
        self._note_deadline(member.deadline_ms)

    def expect_to_join(self, member_id: str, now_ms: int) -> None:
        """A member of the classic protocol was told to join again, and has as long as it may take for that."""
        member = self.members[member_id]
        if member.revoke_deadline_ms is None:
            member.revoke_deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
            self._note_deadline(member.revoke_deadline_ms)

    def note_joined(self, member_id: str) -> None:
        """A classic member has joined again. If it still has partitions to give up, its deadline stays."""
        member = self.members[member_id]
        if member.position.state != UNREVOKED:
            member.revoke_deadline_ms = None

    def hear_all(self, rules: ConsumerRules, now_ms: int) -> None:
        """The process has just started: every member has its whole session, and all its time to give up partitions."""
        for member in self.members.values():
            if member.revoke_deadline_ms is not None:
                member.revoke_deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
            self.hear(member.member_id, rules, now_ms)

    def heartbeat_interval_ms(self, rules: ConsumerRules, now_ms: int) -> int:
        """The time to a member's next heartbeat: short if the group has changed within the usual interval."""
        interval_ms = rules.heartbeat_interval_ms
        # A change in the future was made before somebody set the clock back.
        is_in_motion = 0 <= now_ms - self.changed_at_ms < interval_ms
        return min(interval_ms, rules.heartbeat_interval_in_motion_ms) if is_in_motion else interval_ms

    def next_deadline_ms(self) -> int | None:
        """The time to look for members that are overdue; None if no member has a deadline."""
        return self._no_deadline_before_ms

    def overdue(self, now_ms: int) -> list[str]:
        """The members that have been silent for too long, or have taken too long to give up partitions."""
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
        """A digest of the topics that the members want, as the topics are now."""
        if self._digested is None or self._digested[0] != catalog.changes:
            subscriptions = {member_id: member.subscription for member_id, member in self.members.items()}
            self._digested = catalog.changes, digest_of(self.topics.wanted(subscriptions, catalog))
        return self._digested[1]

    def subscriptions(self) -> Iterable[ConsumerSubscription]:
        """What the members have said."""
        return (member.subscription for member in self.members.values())

    # Applying

    def check(self, entry: ConsumerGroupChanged) -> None:
        """ValueError for an entry that cannot follow on those before it, in service and in recovery alike."""
        self._owners.check(entry, self.members)

    def apply(self, entry: ConsumerGroupChanged) -> None:
        """Make an entry true that `check` has let pass."""
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

    def as_entry(self, group: str) -> ConsumerGroupChanged:
        """The entry that makes a new group what this one is."""
        members = self.members.values()
        return ConsumerGroupChanged(
            group,
            self.epoch,
            self.target_epoch,
            self.topics_digest,
            left=(),
            subscriptions=tuple([member.subscription for member in members]),
            targets=tuple(
                [ConsumerTarget(member_id, tuple(target.spans())) for member_id, target in self.targets.items()]
            ),
            positions=tuple([member.position for member in members]),
            at_ms=self.changed_at_ms,
        )

    def snapshot(self) -> dict[str, Any]:
        """All that is kept, in what JSON can say; nothing that happens later changes it."""
        entry = self.as_entry("")
        return {"kind": KIND, **{name: getattr(entry, name) for name in _KEPT}}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what `snapshot` says. Nothing may have been here before."""
        kept = {name: value for name, value in snapshot.items() if name != "kind"}
        entry = ConsumerGroupChanged(group="", left=(), **kept)
        self.check(entry)
        self.apply(entry)
