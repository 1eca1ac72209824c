"""Runs the groups of the new protocol: it commits the changes of heartbeats, and removes silent members.

The rules are in `semel.log.core.groups.consumer`. This file has what the rules must not know: the journal that stores
their entries, the alarm, and the position up to which the journal must be durable before a member learns its position.
A heartbeat that changes nothing writes nothing. Still its answer waits until the last change of its group is durable,
because it shows that change.

Members of the classic protocol come from `semel.log.broker.classic_groups`, which has the groups without a member of
the new protocol.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from semel.log.broker.members import MemberName, Members
from semel.log.broker.runtime import Runtime
from semel.log.core.configs import Definition, canonical
from semel.log.core.entries import ConsumerGroupChanged, ConsumerSubscription
from semel.log.core.groups import consumer_migration, consumer_requests, group_configs
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.classic_steps import JoinAnswer, JoinRequest, Leaver, SyncAnswer, SyncRequest
from semel.log.core.groups.consumer import ConsumerGroup, ConsumerRules
from semel.log.core.groups.consumer_assignment import assignment, decide_targets, waits_for_assignment
from semel.log.core.groups.consumer_members import JOIN_EPOCH, new_subscription
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.consumer_topics import ResolvedPattern, Sight
from semel.log.core.groups.partitions import Partitions
from semel.wire.refusals import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    INVALID_REQUEST,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    Refused,
)
from semel.wire.steps import APPEND_PIECES, Steps, Waiting

# The topics in the targets that one entry has, counted for each member: some milliseconds.
_TOPICS_PER_ENTRY: Final = 500


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat: the member's epoch, its partitions if they are new, and when the answer may
    be sent.
    """

    member_id: str
    epoch: int
    may_read: Partitions | None
    heartbeat_interval_ms: int
    after: int


class ClassicSide(Protocol):
    """The coordinator of classic groups, for a group that changes from one protocol to the other."""

    def hand_over(self, machine: ClassicGroup) -> None:
        """The group has changed to the new protocol."""

    def take_over(self, name: str) -> None:
        """The group has changed to the classic protocol."""


class ConsumerGroupCoordinator:
    """The groups of the new protocol of one broker."""

    classic: ClassicSide

    def __init__(self, runtime: Runtime, members: Members, sight: Sight) -> None:
        """`members` are those of all groups."""
        self._runtime = runtime
        self._sight = sight
        self._state = runtime.log.state
        self._members = members
        limits = runtime.limits
        self._rules = ConsumerRules(
            session_timeout_ms=limits.consumer_group_session_timeout_ms,
            heartbeat_interval_ms=limits.consumer_group_heartbeat_interval_ms,
            heartbeat_interval_in_motion_ms=limits.consumer_group_heartbeat_interval_in_motion_ms,
            lost_connection_session_percent=limits.group_lost_connection_session_percent,
            members_max=limits.group_members_max,
        )
        # The position of the journal after the last entry of each group.
        self._changed: dict[str, int] = {}
        self._deadlines = runtime.alarm.deadlines(self._pass_time)
        # The groups whose targets are being computed, and the requests that wait for that.
        self._assigning: dict[str, list[Waiting]] = {}

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """The configurations that may be set on a group."""
        return group_configs.definitions(self._rules)

    def rules_of(self, name: str) -> ConsumerRules:
        """The rules for a group: its configurations, and the broker's settings for those that are not set."""
        return group_configs.rules_with(self._rules, self._state.groups.configs_of(name))

    def configure(self, name: str, configs: Mapping[str, str | None], *, validate_only: bool) -> bool:
        """Replace the configurations of a group; return whether that changed anything. Its members learn them with
        their next heartbeats.
        """
        groups = self._state.groups
        canonical_configs = canonical(configs, self.definitions)
        group_configs.check(canonical_configs, self._rules)
        entry = groups.decide_configs(name, canonical_configs)
        if canonical_configs == groups.configs_of(name) or validate_only:
            return False
        self._runtime.commit(entry)
        return True

    def begin(self) -> None:
        """The log was recovered: members have their whole session to show that they are still there."""
        for group in self._state.groups:
            if isinstance(group.machine, ConsumerGroup):
                group.machine.hear_all(self.rules_of(group.name), self._runtime.clock.steady_ms())
                self._members.note_size(group.name, group.machine.size_bytes)
                self._note_deadline(group.name, group.machine)

    # -- members of the new protocol ----------------------------------------------------------------------------

    def heartbeat(self, name: str, beat: Heartbeat, address: str) -> Steps[HeartbeatAnswer]:
        """Carry out the changes of a heartbeat, or refuse it. A new group is charged to the member's `address`."""
        if not name:
            raise Refused(INVALID_REQUEST, "a group needs a name")
        consumer_requests.check(beat)
        pattern = yield from self.look_up(name, beat)
        # The group may have changed during the steps. From here on there is no step.
        answer = self._heartbeat(name, beat, pattern, address)
        if beat.epoch != JOIN_EPOCH:
            if not beat.leaves:
                self._assign_soon(name)
        elif (yield from self._assigned(name)):
            # As if the member had joined once more: it learns its target with its first answer.
            answer = self._heartbeat(name, beat, pattern, address)
        return answer

    def _assigned(self, name: str) -> Steps[bool]:
        """Wait until a large group has targets for its members as they are now; False if it had them already."""
        machine = self._existing(name)
        if machine is None or not waits_for_assignment(machine):
            return False
        epoch = machine.epoch
        # A computation that is under way does not know the newest member yet, but the next one does.
        for _ in range(2):
            if machine is not self._existing(name) or machine.target_epoch >= epoch:
                break
            if name in self._assigning:
                waiting = Waiting()
                self._assigning[name].append(waiting)
                yield waiting
            else:
                yield from self._assign(name)
        return True

    def _assign(self, name: str) -> Steps[None]:
        """Compute the targets of a large group in steps, and commit them in several entries.

        If members join or leave meanwhile, the group has a later epoch in the end, and its next heartbeat begins again.
        """
        self._assigning[name] = []
        try:
            # A turn of its own: a decision of the group may just have been made in this one.
            yield self._runtime.pace.pieces_per_turn
            machine = self._existing(name)
            if machine is None:
                return
            epoch, members = machine.epoch, set(machine.members)
            rest = dict((yield from assignment(machine, self._state.catalog)))
            # In between the group may have become so small that a heartbeat has assigned at once.
            while machine is self._existing(name) and machine.target_epoch < epoch:
                some = some_of(rest)
                # A static member that has come back under a new id keeps the old target, which others now have, too.
                has_lost = bool(members - machine.members.keys())
                epochs = (machine.epoch, machine.target_epoch) if rest else (machine.epoch + has_lost, epoch)
                entry = decide_targets(machine, name, some, *epochs, self._runtime.clock.steady_ms())
                if entry.targets or not rest:
                    self._keep(name, machine, entry)
                yield APPEND_PIECES + len(some)
        finally:
            for waiting in self._assigning.pop(name):
                waiting.end()

    def _assign_soon(self, name: str) -> None:
        """The same, if it is necessary, for a request that does not wait for it."""
        machine = self._existing(name)
        if machine is not None and waits_for_assignment(machine) and name not in self._assigning:
            self._runtime.turns.begin(self._assign(name), self._note_assigned)

    def _note_assigned(self, error: Exception | None) -> None:
        # If the disk refused the write, the next heartbeat tries again.
        self._runtime.note_end(None if isinstance(error, Refused) else error)

    def _heartbeat(self, name: str, beat: Heartbeat, pattern: ResolvedPattern | None, address: str) -> HeartbeatAnswer:
        machine, upgrade = self._machine(name, beat)
        member_before = machine.members.get(beat.member_id)
        could_read = None if member_before is None else member_before.held
        catalog, now_ms = self._state.catalog, self._runtime.clock.steady_ms()
        entry: ConsumerGroupChanged | None
        if beat.leaves:
            entry = machine.decide_leave(name, beat, catalog, now_ms)
        else:
            if pattern is not None:
                machine.topics.remember(pattern)
            entry = machine.decide_heartbeat(name, beat, catalog, self.rules_of(name), now_ms)
        if upgrade is not None:
            self._upgrade(name, upgrade)
        with self._members.founding(name, address):
            machine = self._keep(name, machine, entry)
        if beat.leaves:
            self._downgrade_if_due(name, machine)
            return HeartbeatAnswer(beat.member_id, beat.epoch, None, 0, self._runtime.log.end)
        machine.hear(beat.member_id, self.rules_of(name), now_ms)
        self._note_deadline(name, machine)
        member = machine.members[beat.member_id]
        must_be_told = beat.says_all or member.held != could_read
        may_read = member.held if must_be_told else None
        interval_ms = machine.heartbeat_interval_ms(self.rules_of(name), now_ms)
        return HeartbeatAnswer(beat.member_id, member.epoch, may_read, interval_ms, self._changed.get(name, 0))

    def _machine(self, name: str, beat: Heartbeat) -> tuple[ConsumerGroup, ConsumerGroupChanged | None]:
        """The group's machine, and the entry to commit first if the group still has the classic protocol."""
        groups = self._state.groups
        group = groups.named(name)
        machine = None if group is None else group.machine
        if isinstance(machine, ConsumerGroup):
            return self._seeing(machine), None
        if beat.epoch != JOIN_EPOCH:
            raise Refused(GROUP_ID_NOT_FOUND, f"there is no consumer group '{name}'")
        groups.check_addable(name)
        new = self._seeing(ConsumerGroup())
        # A client that was given an id and has not joined with it yet will join the new group.
        if not isinstance(machine, ClassicGroup) or not len(machine.members):
            return new, None
        upgrade = consumer_migration.upgrade(
            machine, self._state.catalog, self.rules_of(name), self._runtime.clock.steady_ms()
        )
        new.apply(upgrade)
        return new, upgrade

    def _keep(self, name: str, machine: ConsumerGroup, entry: ConsumerGroupChanged | None) -> ConsumerGroup:
        """Commit an entry, or refuse the request. Return the machine after the commit."""
        if entry is None:
            return machine
        self._check_size(machine, entry)
        try:
            return self._commit(name, machine, entry)
        except OSError as refusal:
            raise Refused(COORDINATOR_NOT_AVAILABLE, "the disk refused the write") from refusal

    def _check_size(self, machine: ConsumerGroup, entry: ConsumerGroupChanged) -> None:
        more_bytes = machine.growth_bytes(entry)
        if more_bytes > 0 and machine.size_bytes + more_bytes > self._runtime.limits.group_bytes_max:
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the members of the group take {machine.size_bytes} bytes")
        self._members.check_growth(more_bytes)

    def _commit(self, name: str, machine: ConsumerGroup, entry: ConsumerGroupChanged) -> ConsumerGroup:
        had_target_epoch = machine.target_epoch
        group = self._state.groups.named(name)
        machine_before = None if group is None else group.machine
        self._runtime.commit(entry)
        for member_id in entry.left:
            self._members.forget(MemberName(name, member_id))
        if isinstance(machine_before, ClassicGroup):
            self.classic.hand_over(machine_before)
        machine = self._state.groups.consumer(name)
        self._members.note_size(name, machine.size_bytes)
        self._changed[name] = self._runtime.log.end
        if machine.is_empty:
            # No answer shows the group before a member joins, and joining makes an entry of its own.
            del self._changed[name]
            self._members.tell("group_emptied", name, reason="all members have left or were silent for too long")
        elif entry.target_epoch > had_target_epoch:
            self._members.tell("group_rebalanced", name, reason=f"assigned by {machine.assignor}")
        return machine

    # -- members of the classic protocol ------------------------------------------------------------------------

    def with_members(self, name: str) -> ConsumerGroup | None:
        """The group, if it has members and the new protocol. An empty group may still change its protocol."""
        machine = self._existing(name)
        return None if machine is None or machine.is_empty else machine

    def join(self, name: str, machine: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        """Answer a JoinGroup at once, without waiting for other members."""
        catalog, now_ms = self._state.catalog, self._runtime.clock.steady_ms()
        try:
            member_id, entry = consumer_migration.decide_join(
                name, machine, request, catalog, self.rules_of(name), now_ms
            )
            self._keep(name, machine, entry)
        except Refused as refused:
            needs_id = refused.error == MEMBER_ID_REQUIRED
            return JoinAnswer(refused.error, request.new_member_id if needs_id else request.member_id)
        machine.hear(member_id, self.rules_of(name), now_ms)
        machine.note_joined(member_id)
        self._note_deadline(name, machine)
        answer = consumer_migration.join_answer(machine.members[member_id])
        self._downgrade_if_due(name, machine)
        self._assign_soon(name)
        return answer

    def sync(self, name: str, machine: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        """Answer a SyncGroup."""
        answer = consumer_migration.sync_answer(machine, request, self._state.catalog)
        machine.hear(request.member_id, self.rules_of(name), self._runtime.clock.steady_ms())
        return answer

    def classic_heartbeat(
        self, name: str, machine: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """`Refused` if the member is unknown, or has to join again."""
        now_ms = self._runtime.clock.steady_ms()
        try:
            consumer_migration.check_heartbeat(machine, member_id, instance_id, generation)
        except Refused as refused:
            if refused.error == REBALANCE_IN_PROGRESS:
                machine.expect_to_join(member_id, now_ms)
                machine.hear(member_id, self.rules_of(name), now_ms)
                self._note_deadline(name, machine)
            raise
        machine.hear(member_id, self.rules_of(name), now_ms)

    def leave(self, name: str, machine: ConsumerGroup, leavers: Iterable[Leaver]) -> list[int]:
        """Remove members; the error code of each."""
        member_ids, results = [], []
        for leaver in leavers:
            try:
                member_ids.append(consumer_migration.leaving(machine, leaver))
                results.append(NONE)
            except Refused as refused:
                results.append(refused.error)
        if member_ids:
            catalog, now_ms = self._state.catalog, self._runtime.clock.steady_ms()
            self._keep(name, machine, machine.decide_removal(name, dict.fromkeys(member_ids), catalog, now_ms))
            self._downgrade_if_due(name, machine)
        return results

    # -- from one protocol to the other -------------------------------------------------------------------------

    def _upgrade(self, name: str, entry: ConsumerGroupChanged) -> None:
        machine = self._keep(name, ConsumerGroup(), entry)
        machine.hear_all(self.rules_of(name), self._runtime.clock.steady_ms())
        self._note_deadline(name, machine)

    def _downgrade_if_due(self, name: str, machine: ConsumerGroup) -> None:
        if not consumer_migration.is_to_downgrade(machine):
            return
        try:
            now_ms = self._runtime.clock.now_ms()
            self._runtime.commit(consumer_migration.downgrade(name, machine, self._state.catalog, now_ms))
        except OSError:
            # The request's own change is committed and must be answered. The group keeps its protocol until a member
            # joins.
            return
        self._members.note_size(name, 0)
        self._changed.pop(name, None)
        self.classic.take_over(name)

    # -- time ---------------------------------------------------------------------------------------------------

    def connection_lost(self, name: str, machine: ConsumerGroup, member_id: str) -> None:
        """Shorten the session of a member that may have died."""
        machine.connection_lost(member_id, self.rules_of(name), self._runtime.clock.steady_ms())
        self._note_deadline(name, machine)

    def _note_deadline(self, name: str, machine: ConsumerGroup) -> None:
        self._deadlines.note(name, machine.next_deadline_ms())

    def _pass_time(self, name: str, now_ms: int) -> Steps[None]:
        """Remove the members of a group that were silent for too long, or took too long to give up partitions."""
        yield from self.look_up(name)
        machine = self._existing(name)
        if machine is not None:
            self._remove_overdue(name, machine, now_ms)
            self._note_deadline(name, machine)

    def look_up(self, name: str, beat: Heartbeat | None = None) -> Steps[ResolvedPattern | None]:
        """Resolve in steps the regular expressions of all members, which a join or a leave needs at once, and that of
        `beat`, which may be for a group that does not exist yet.
        """
        machine = self._existing(name)
        if machine is None:
            if beat is None or not beat.topic_regex:
                return None
            machine = self._seeing(ConsumerGroup())
        new = None if beat is None else _subscribed(machine, beat)
        return (yield from machine.topics.look_up(machine.subscriptions(), self._state.catalog, new))

    def _existing(self, name: str) -> ConsumerGroup | None:
        group = self._state.groups.named(name)
        machine = None if group is None else group.machine
        return self._seeing(machine) if isinstance(machine, ConsumerGroup) else None

    def _seeing(self, machine: ConsumerGroup) -> ConsumerGroup:
        """The machine, which has just been made, perhaps: it has to know who may see which topics."""
        machine.topics.sight = self._sight
        return machine

    def _remove_overdue(self, name: str, machine: ConsumerGroup, now_ms: int) -> None:
        overdue = machine.overdue(now_ms)
        if overdue:
            disconnected = {member_id for member_id in overdue if machine.members[member_id].has_lost_connection}
            self._commit(name, machine, machine.decide_removal(name, overdue, self._state.catalog, now_ms))
            for member_id in overdue:
                slow = "was silent for too long, or took too long to give up partitions"
                reason = "was silent after its connection was lost" if member_id in disconnected else slow
                self._members.tell("member_expired", name, reason=f"{member_id} {reason}")
            self._downgrade_if_due(name, machine)


def some_of(targets: dict[str, Partitions]) -> dict[str, Partitions]:
    """Take as many of these as fit into one entry."""
    some: dict[str, Partitions] = {}
    topics_left = _TOPICS_PER_ENTRY
    while targets and topics_left > 0:
        member_id, partitions = targets.popitem()
        some[member_id] = partitions
        topics_left -= 1 + len(partitions.by_topic())
    return some


def _subscribed(machine: ConsumerGroup, beat: Heartbeat) -> ConsumerSubscription:
    """The subscription of the member that sends a heartbeat, unless that is refused."""
    before = machine.members.get(beat.member_id)
    former = new_subscription(beat.member_id, beat.instance_id) if before is None else before.subscription
    return consumer_requests.with_what_was_said(former, beat)
