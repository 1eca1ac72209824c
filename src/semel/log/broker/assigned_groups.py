"""Runs the groups whose members the broker assigns: it commits the changes of heartbeats, and removes silent members.

The rules are in `semel.log.core.groups.assigned_group`. This file has what the rules must not know: the journal that
stores their entries, the alarm, and the position up to which the journal must be durable before a member learns its
position. A heartbeat that changes nothing writes nothing. Still its answer waits until the last change of its group is
durable, because it shows that change. What differs between the kinds of groups is in `consumer_groups` and
`share_groups`.
"""

from typing import Final, Generic, NamedTuple, TypeGuard, TypeVar

from semel.log.broker.members import MemberName, Members
from semel.log.broker.runtime import Runtime
from semel.log.core.entries import ConsumerSubscription, MembersChanged
from semel.log.core.groups import consumer_requests
from semel.log.core.groups.assigned_group import AssignedGroup, MemberRules
from semel.log.core.groups.consumer_assignment import assignment, decide_targets, waits_for_assignment
from semel.log.core.groups.consumer_members import JOIN_EPOCH, new_subscription
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.consumer_topics import ResolvedPattern, Sight
from semel.log.core.groups.partitions import Partitions
from semel.wire.refusals import COORDINATOR_NOT_AVAILABLE, GROUP_MAX_SIZE_REACHED, INVALID_REQUEST, Refused
from semel.wire.steps import APPEND_PIECES, Steps, Waiting

M = TypeVar("M", bound=AssignedGroup)

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


class AssignedGroupCoordinator(Generic[M]):
    """The groups of one kind of one broker."""

    def __init__(self, runtime: Runtime, members: Members, sight: Sight) -> None:
        """`members` are those of all groups."""
        self._runtime = runtime
        self._sight = sight
        self._state = runtime.log.state
        self._members = members
        # The position of the journal after the last entry of each group.
        self._changed: dict[str, int] = {}
        self._deadlines = runtime.alarm.deadlines(self._pass_time)
        # The groups whose targets are being computed, and the requests that wait for that.
        self._assigning: dict[str, list[Waiting]] = {}

    # -- what differs -------------------------------------------------------------------------------------------

    def rules_of(self, name: str) -> MemberRules:
        """The rules for the members of a group."""
        raise NotImplementedError

    def is_ours(self, machine: object) -> TypeGuard[M]:
        """Whether a group with this machine is of this kind."""
        raise NotImplementedError

    def _machine(self, name: str, beat: Heartbeat) -> tuple[M, MembersChanged | None]:
        """The group's machine, which may be new, and an entry to commit first; Refused if it is of another kind."""
        raise NotImplementedError

    def _new(self) -> M:
        """The machine of a new group."""
        raise NotImplementedError

    def _begin_with(self, name: str, entry: MembersChanged) -> None:
        """Commit the entry that makes the group one of this kind."""

    def _append(self, entry: MembersChanged) -> None:
        self._runtime.commit(entry)

    def _note_left(self, name: str, machine: M) -> None:
        """Members may have left."""

    # -- heartbeats ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The log was recovered: members have their whole session to show that they are still there."""
        for group in list(self._state.groups):
            if self.is_ours(group.machine):
                group.machine.hear_all(self.rules_of(group.name), self._runtime.clock.steady_ms())
                self._members.note_size(group.name, group.machine.size_bytes)
                self._note_deadline(group.name, group.machine)

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
        entry: MembersChanged | None
        if beat.leaves:
            entry = machine.decide_leave(name, beat, catalog, now_ms)
        else:
            if pattern is not None:
                machine.topics.remember(pattern)
            entry = machine.decide_heartbeat(name, beat, catalog, self.rules_of(name), now_ms)
        if upgrade is not None:
            self._begin_with(name, upgrade)
        with self._members.founding(name, address):
            machine = self._keep(name, machine, entry)
        if beat.leaves:
            self._note_left(name, machine)
            return HeartbeatAnswer(beat.member_id, beat.epoch, None, 0, self._runtime.log.end)
        machine.hear(beat.member_id, self.rules_of(name), now_ms)
        self._note_deadline(name, machine)
        member = machine.members[beat.member_id]
        must_be_told = beat.says_all or member.held != could_read
        may_read = member.held if must_be_told else None
        interval_ms = machine.heartbeat_interval_ms(self.rules_of(name), now_ms)
        return HeartbeatAnswer(beat.member_id, member.epoch, may_read, interval_ms, self._changed.get(name, 0))

    def _keep(self, name: str, machine: M, entry: MembersChanged | None) -> M:
        """Commit an entry, or refuse the request. Return the machine after the commit."""
        if entry is None:
            return machine
        self._check_size(machine, entry)
        try:
            return self._commit(name, machine, entry)
        except OSError as refusal:
            raise Refused(COORDINATOR_NOT_AVAILABLE, "the disk refused the write") from refusal

    def _check_size(self, machine: M, entry: MembersChanged) -> None:
        more_bytes = machine.growth_bytes(entry)
        if more_bytes > 0 and machine.size_bytes + more_bytes > self._runtime.limits.group_bytes_max:
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the members of the group take {machine.size_bytes} bytes")
        self._members.check_growth(more_bytes)

    def _commit(self, name: str, machine: M, entry: MembersChanged) -> M:
        had_target_epoch = machine.target_epoch
        self._append(entry)
        for member_id in entry.left:
            self._members.forget(MemberName(name, member_id))
        machine = self._existing(name) or machine
        self._members.note_size(name, machine.size_bytes)
        self._changed[name] = self._runtime.log.end
        if machine.is_empty:
            # No answer shows the group before a member joins, and joining makes an entry of its own.
            del self._changed[name]
            self._members.tell("group_emptied", name, reason="all members have left or were silent for too long")
        elif entry.target_epoch > had_target_epoch:
            self._members.tell("group_rebalanced", name, reason=f"assigned by {machine.assignor}")
        return machine

    def connection_lost(self, name: str, machine: M, member_id: str) -> None:
        """Shorten the session of a member that may have died."""
        machine.connection_lost(member_id, self.rules_of(name), self._runtime.clock.steady_ms())
        self._note_deadline(name, machine)

    def _note_deadline(self, name: str, machine: M) -> None:
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
            machine = self._seeing(self._new())
        new = None if beat is None else _subscribed(machine, beat)
        return (yield from machine.topics.look_up(machine.subscriptions(), self._state.catalog, new))

    def _existing(self, name: str) -> M | None:
        group = self._state.groups.named(name)
        machine = None if group is None else group.machine
        return self._seeing(machine) if self.is_ours(machine) else None

    def _seeing(self, machine: M) -> M:
        """The machine, which has just been made, perhaps: it has to know who may see which topics."""
        machine.topics.sight = self._sight
        return machine

    def _remove_overdue(self, name: str, machine: M, now_ms: int) -> None:
        overdue = machine.overdue(now_ms)
        if overdue:
            disconnected = {member_id for member_id in overdue if machine.members[member_id].has_lost_connection}
            self._commit(name, machine, machine.decide_removal(name, overdue, self._state.catalog, now_ms))
            for member_id in overdue:
                slow = "was silent for too long, or took too long to give up partitions"
                reason = "was silent after its connection was lost" if member_id in disconnected else slow
                self._members.tell("member_expired", name, reason=f"{member_id} {reason}")
            self._note_left(name, machine)


def some_of(targets: dict[str, Partitions]) -> dict[str, Partitions]:
    """Take as many of these as fit into one entry."""
    some: dict[str, Partitions] = {}
    topics_left = _TOPICS_PER_ENTRY
    while targets and topics_left > 0:
        member_id, partitions = targets.popitem()
        some[member_id] = partitions
        topics_left -= 1 + len(partitions.by_topic())
    return some


def _subscribed(machine: AssignedGroup, beat: Heartbeat) -> ConsumerSubscription:
    """The subscription of the member that sends a heartbeat, unless that is refused."""
    before = machine.members.get(beat.member_id)
    former = new_subscription(beat.member_id, beat.instance_id) if before is None else before.subscription
    return consumer_requests.with_what_was_said(former, beat)
