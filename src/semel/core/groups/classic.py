"""The classic protocol of consumer groups: members join, one of them leads and assigns, all hear what they were given.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
               members join          members sync          members send heartbeats

Whoever is late is left out, and every new generation has a higher number than all before it. What must outlive the
process is one entry, `ClassicGroupChanged`: the generation with its members and assignments, proposed when the leader
has assigned, or when nobody is left. Who waits for whom, and until when, is soft, and `begin` starts it anew.

A request that has to wait is a token of the caller's. Every step answers some of them, each once, and may propose an
entry; whoever drives the group commits that, applies it, and says how it went, before the next step. This file must
never look into the bytes that members exchange, but for the names of topics.
"""

from collections.abc import Iterable
from typing import Final

from semel.core import refusals
from semel.core.groups.classic_members import Member, Members, Waiter
from semel.core.groups.classic_state import ClassicState, State
from semel.core.groups.classic_steps import (
    NO_MEMBER_ID,
    ClassicRules,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    Leaver,
    Proposal,
    Step,
    SyncAnswer,
    SyncRequest,
)
from semel.core.refusals import Refused

# Where there are only static members and none joined, the next look is not before this, however little time they asked.
NOBODY_JOINED_MS_MIN: Final = 1_000


class ClassicGroup(ClassicState):
    """One group, and how it goes from one generation to the next."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Whether the group was empty before the rebalance that is being prepared: then the first ones wait for more.
        self._is_initial = False
        self._newcomer_seen = False
        self._delay_ms = 0
        self._extension_ms = 0
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._sync_awaited: set[str] = set()

    # -- joining ------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: Waiter, now_ms: int, rules: ClassicRules) -> Step:
        """Answered when all members have joined, or when those who have not are late."""
        step = Step(now_ms)
        try:
            self._check_join(request, rules)
            self._join(request, waiter, step, rules)
        except Refused as refused:
            step.answer(waiter, JoinAnswer(refused.error, request.member_id))
        return step

    def _check_join(self, request: JoinRequest, rules: ClassicRules) -> None:
        if self.state is State.DEAD:
            raise Refused(refusals.COORDINATOR_NOT_AVAILABLE, "the group is gone")
        self._check_room(request, rules)
        if self.state is State.EMPTY:
            is_consistent = bool(request.protocol_type and request.protocols)
        else:
            is_consistent = request.protocol_type == self.protocol_type and self.members.all_know_one_of(
                request.protocols
            )
        if not is_consistent:
            raise Refused(refusals.INCONSISTENT_GROUP_PROTOCOL, "the group has no protocol that this member knows")

    def _check_room(self, request: JoinRequest, rules: ClassicRules) -> None:
        if self._said_to_be(request) is None:
            count = len(self.members) + len(self.expected) - (request.member_id in self.expected)
            if count >= rules.members_max:
                raise Refused(refusals.GROUP_MAX_SIZE_REACHED, f"the group has {count} members, no more are allowed")
        growth_bytes = self.growth_bytes(request)
        if growth_bytes > 0 and self.size_bytes + growth_bytes > rules.group_bytes_max:
            raise Refused(refusals.GROUP_MAX_SIZE_REACHED, f"the members of the group take {self.size_bytes} bytes")

    def growth_bytes(self, request: JoinRequest) -> int:
        """How much more the members would take by what one of them, or a new one, says."""
        member = self._said_to_be(request)
        known_bytes = self.expected_bytes(request.member_id) if member is None else member.brought_bytes
        return request.brought_bytes - known_bytes

    def _said_to_be(self, request: JoinRequest) -> Member | None:
        """The member that asks to join, or whose place it takes; None for one that is new."""
        member = self.members.get(request.member_id)
        if member is None and request.instance_id is not None:
            member = self.members.of_instance(request.instance_id)
        return member

    def _join(self, request: JoinRequest, waiter: Waiter, step: Step, rules: ClassicRules) -> None:
        if request.member_id == NO_MEMBER_ID:
            if request.instance_id is not None:
                self._join_static(request, request.instance_id, waiter, step, rules)
            elif request.requires_known_id:
                self.expected[request.new_member_id] = step.now_ms + request.session_timeout_ms
                step.answer(waiter, JoinAnswer(refusals.MEMBER_ID_REQUIRED, request.new_member_id))
            else:
                self._add(request, request.new_member_id, waiter, step, rules)
        elif request.member_id in self.expected and request.instance_id is None:
            del self.expected[request.member_id]
            self._add(request, request.member_id, waiter, step, rules)
        else:
            self._join_again(request, waiter, step)

    def _join_static(
        self, request: JoinRequest, instance_id: str, waiter: Waiter, step: Step, rules: ClassicRules
    ) -> None:
        """A static member has started: it is new, or takes the place that it had before, without a rebalance."""
        old = self.members.of_instance(instance_id)
        if old is None:
            self._add(request, request.new_member_id, waiter, step, rules)
            return
        leader_before = self.members.leader or NO_MEMBER_ID
        member = request.as_member(request.new_member_id)
        member.assignment = old.assignment
        self.hear(member, step.now_ms)
        self._replace(old, member)
        step.gone.append(old.member_id)
        step.dismiss(old, refusals.FENCED_INSTANCE_ID)
        if self.state is State.STABLE and self.members.select_protocol() == self.protocol:
            self._propose_replacement(old, member, request, leader_before, waiter, step)
            return
        member.join_waiter = waiter
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_have(step)
        else:
            self._prepare_rebalance(step)

    def _propose_replacement(
        self, old: Member, member: Member, request: JoinRequest, leader_before: str, waiter: Waiter, step: Step
    ) -> None:
        def kept() -> None:
            answer = self._join_answer(member)
            if request.may_skip_assignment:
                # It may look whether topics have changed, and join again if they have; but nothing is to be assigned.
                answer = answer._replace(skip_assignment=self.members.leader == member.member_id)
            else:
                # Older clients assign as soon as they hear that they lead, so they are told who led before.
                answer = answer._replace(leader=leader_before, members=())
            step.answer(waiter, answer)

        def refused() -> None:
            self._replace(member, old)
            step.answer(waiter, JoinAnswer(refusals.COORDINATOR_NOT_AVAILABLE))

        assignments = {one.member_id: one.assignment for one in self.members}
        step.proposal = Proposal(self.to_store(assignments, step.now_ms), kept, refused)

    def _replace(self, old: Member, member: Member) -> None:
        self.members.replace(old, member)
        if old.member_id in self._sync_awaited:
            self._sync_awaited.remove(old.member_id)
            self._sync_awaited.add(member.member_id)

    def _add(self, request: JoinRequest, member_id: str, waiter: Waiter, step: Step, rules: ClassicRules) -> None:
        if not len(self.members):
            self.protocol_type = request.protocol_type
        member = request.as_member(member_id)
        member.is_new = True
        member.join_waiter = waiter
        # It has no heart that beats before it is told its generation, and clients give up waiting after this long.
        member.deadline_ms = step.now_ms + rules.new_member_join_timeout_ms
        self._newcomer_seen = True
        self.members.add(member)
        if self.state is State.EMPTY:
            self._prepare_initial_rebalance(step, rules.initial_rebalance_delay_ms)
        else:
            self._rebalance(step)

    def _join_again(self, request: JoinRequest, waiter: Waiter, step: Step) -> None:
        member = self.member(request.member_id, request.instance_id)
        is_changed = list(member.protocols.items()) != list(request.protocols.items())
        # The leader joins again when it knows a reason that the others do not, such as more partitions.
        leads = self.state is State.STABLE and self.members.leader == member.member_id
        if self.state is not State.PREPARING_REBALANCE and not is_changed and not leads:
            # The answer was lost, or it would rather be sure.
            self.hear(member, step.now_ms)
            step.answer(waiter, self._join_answer(member))
            return
        if member.join_waiter is not None:
            step.answer(member.join_waiter, JoinAnswer(refusals.REBALANCE_IN_PROGRESS, member.member_id))
        self.members.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join_waiter = waiter
        self._rebalance(step)

    def _join_answer(self, member: Member) -> JoinAnswer:
        leader = self.members.leader or NO_MEMBER_ID
        members: tuple[JoinedMember, ...] = ()
        if leader == member.member_id:
            protocol = self.protocol or ""
            members = tuple(
                JoinedMember(one.member_id, one.instance_id, one.protocols.get(protocol, b"")) for one in self.members
            )
        return JoinAnswer(
            refusals.NONE, member.member_id, self.generation, self.protocol_type, self.protocol, leader, False, members
        )

    # -- rebalancing --------------------------------------------------------------------------------------------

    def _rebalance(self, step: Step) -> None:
        """Somebody came, went or changed: all have to join again, unless they are about to anyhow."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_have(step)
        else:
            self._prepare_rebalance(step)

    def _prepare_rebalance(self, step: Step) -> None:
        self._stop_syncing(refusals.REBALANCE_IN_PROGRESS, step)
        self.state = State.PREPARING_REBALANCE
        self._is_initial = False
        self._join_deadline_ms = step.now_ms + self.members.rebalance_timeout_ms
        self._complete_join_if_all_have(step)

    def _prepare_initial_rebalance(self, step: Step, delay_ms: int) -> None:
        """The first member is here, and others are likely to start just now: wait a little for them."""
        self.state = State.PREPARING_REBALANCE
        self._is_initial = True
        self._newcomer_seen = False
        self._delay_ms = delay_ms
        self._extension_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
        self._join_deadline_ms = step.now_ms + delay_ms

    def _end_initial_delay(self, step: Step) -> None:
        if not self._newcomer_seen or not self._extension_ms:
            self._complete_join(step)
            return
        self._newcomer_seen = False
        delay_ms = min(self._delay_ms, self._extension_ms)
        self._extension_ms = max(self._extension_ms - self._delay_ms, 0)
        self._join_deadline_ms = step.now_ms + delay_ms

    def _complete_join_if_all_have(self, step: Step) -> None:
        if self._is_initial or self.expected or self.members.waiting_to_join < len(self.members):
            return
        self._complete_join(step)

    def _complete_join(self, step: Step) -> None:
        """The next generation is made of those who have joined, and of static members, who may be restarting."""
        for member in [one for one in self.members if one.join_waiter is None and one.instance_id is None]:
            self._expire(member, "did not join again in time", step)
        if len(self.members) and not self.members.elect_leader():
            self._join_deadline_ms = step.now_ms + max(self.members.rebalance_timeout_ms, NOBODY_JOINED_MS_MIN)
            return
        self._join_deadline_ms = None
        self._is_initial = False
        self.generation += 1
        if not len(self.members):
            self._become_empty(step)
            return
        self.protocol = self.members.select_protocol()
        self.state = State.COMPLETING_REBALANCE
        for member in self.members:
            if member.join_waiter is not None:
                step.answer(member.join_waiter, self._join_answer(member))
                member.join_waiter = None
            member.is_new = False
            self.hear(member, step.now_ms)
            self._sync_awaited.add(member.member_id)
        self._sync_deadline_ms = step.now_ms + self.members.rebalance_timeout_ms

    def _become_empty(self, step: Step) -> None:
        self.state = State.EMPTY
        self.protocol = None
        step.tell("group_emptied", "all members have left or were silent for too long")
        # Where the disk refuses, a restart brings back members that will be found silent: nothing is lost.
        step.proposal = Proposal(self.to_store({}, step.now_ms), _nothing, _nothing)

    # -- syncing ------------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, waiter: Waiter, now_ms: int) -> Step:
        """Answered when the leader has assigned, and its assignment is stored."""
        step = Step(now_ms)
        try:
            self._sync(request, waiter, step)
        except Refused as refused:
            step.answer(waiter, SyncAnswer(refused.error))
        return step

    def _sync(self, request: SyncRequest, waiter: Waiter, step: Step) -> None:
        member = self.member_of_generation(request.member_id, request.instance_id, request.generation)
        self.hear(member, step.now_ms)
        for asked, actual in ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol)):
            if asked is not None and asked != actual:
                raise Refused(refusals.INCONSISTENT_GROUP_PROTOCOL, f"the group goes by {actual}, not by {asked}")
        if self.state is State.PREPARING_REBALANCE:
            raise Refused(refusals.REBALANCE_IN_PROGRESS, "the members are joining again")
        self._sync_awaited.discard(member.member_id)
        if not self._sync_awaited:
            self._sync_deadline_ms = None
        if self.state is State.STABLE:
            step.answer(waiter, self._sync_answer(member))
            return
        if member.sync_waiter is not None:
            step.answer(member.sync_waiter, SyncAnswer(refusals.REBALANCE_IN_PROGRESS))
        member.sync_waiter = waiter
        if self.members.leader == member.member_id:
            entry = self.to_store(request.assignments, step.now_ms)
            step.proposal = Proposal(entry, lambda: self._share(step), lambda: self._keep_nothing(step))

    def _share(self, step: Step) -> None:
        """The assignments are stored: everybody who waits for theirs is told."""
        for member in self.members:
            if member.sync_waiter is not None:
                step.answer(member.sync_waiter, self._sync_answer(member))
                member.sync_waiter = None
                self.hear(member, step.now_ms)
        step.tell("group_rebalanced", f"{self.members.leader} assigned by {self.protocol}")

    def _keep_nothing(self, step: Step) -> None:
        """The assignments could not be stored: nobody may act upon them."""
        self._stop_syncing(refusals.COORDINATOR_NOT_AVAILABLE, step)
        self._prepare_rebalance(step)

    def _stop_syncing(self, error: int, step: Step) -> None:
        for member in self.members:
            if member.sync_waiter is not None:
                step.answer(member.sync_waiter, SyncAnswer(error))
                member.sync_waiter = None
                self.hear(member, step.now_ms)
        self._sync_awaited.clear()
        self._sync_deadline_ms = None

    def _sync_answer(self, member: Member) -> SyncAnswer:
        return SyncAnswer(refusals.NONE, self.protocol_type, self.protocol, member.assignment)

    # -- staying, leaving, falling silent -----------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A member is there. `Refused` if it is not one of this generation, or has to join again."""
        self.hear(self.member_of_generation(member_id, instance_id, generation), now_ms)
        if self.state is State.PREPARING_REBALANCE:
            raise Refused(refusals.REBALANCE_IN_PROGRESS, "the members are joining again")

    def leave(self, leavers: Iterable[Leaver], now_ms: int) -> Step:
        step = Step(now_ms)
        for leaver in leavers:
            try:
                self._leave(leaver, step)
                step.left.append(refusals.NONE)
            except Refused as refused:
                step.left.append(refused.error)
        if refusals.NONE in step.left and self.state not in (State.EMPTY, State.DEAD):
            self._rebalance(step)
        return step

    def _leave(self, leaver: Leaver, step: Step) -> None:
        if self.expected.pop(leaver.member_id, None) is not None:
            return
        member: Member | None
        if leaver.member_id == NO_MEMBER_ID and leaver.instance_id is not None:
            member = self.members.of_instance(leaver.instance_id)
            if member is None:
                raise Refused(refusals.UNKNOWN_MEMBER_ID, "no member has this instance id")
        else:
            member = self.member(leaver.member_id, leaver.instance_id)
        self._remove(member, step)

    def forget(self, waiter: Waiter, now_ms: int) -> None:
        """Nobody would hear the answer any more: the member has to come back within its session."""
        for member in self.members:
            if waiter in (member.join_waiter, member.sync_waiter):
                member.join_waiter = member.sync_waiter = None
                member.is_new = False
                self.hear(member, now_ms)

    def connection_lost(self, member_id: str, now_ms: int, rules: ClassicRules) -> int | None:
        """The connection over which a member was heard last is gone: by when it has to show itself, if that is earlier.

        A static member may be starting anew, for which it has its whole session. Whoever waits for an answer does so
        over another connection, or `forget` would have come first.
        """
        member = self.members.get(member_id)
        if member is None or member.instance_id is not None or member.is_waiting:
            return None
        deadline_ms = now_ms + member.session_timeout_ms * rules.lost_connection_session_percent // 100
        if deadline_ms >= member.deadline_ms:
            return None
        member.deadline_ms = deadline_ms
        member.has_lost_connection = True
        return deadline_ms

    def next_deadline_ms(self) -> int | None:
        """When there is something to do, whatever happens until then."""
        deadlines = [member.deadline_ms for member in self.members if member.is_timed]
        deadlines += self.expected.values()
        deadlines += [at for at in (self._join_deadline_ms, self._sync_deadline_ms) if at is not None]
        return min(deadlines, default=None)

    def pass_time(self, now_ms: int) -> Step:
        """Whoever has been silent for too long is no member any more, and nobody waits for what is late."""
        step = Step(now_ms)
        if self.state is State.DEAD:
            return step
        silent = [member_id for member_id, deadline_ms in self.expected.items() if deadline_ms <= now_ms]
        for member_id in silent:
            del self.expected[member_id]
        overdue = [member for member in self.members if member.is_timed and member.deadline_ms <= now_ms]
        for member in overdue:
            silence = "after its connection was lost" if member.has_lost_connection else "for too long"
            self._expire(member, f"was silent {silence}", step)
        if overdue or (silent and self.state is State.PREPARING_REBALANCE):
            self._rebalance(step)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            if self._is_initial:
                self._end_initial_delay(step)
            else:
                self._complete_join(step)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            for member in [one for one in self.members if one.member_id in self._sync_awaited]:
                self._expire(member, "did not ask for its assignment in time", step)
            self._prepare_rebalance(step)
        return step

    def rebalance(self, now_ms: int) -> Step:
        """All members have to join again, for a reason that only the caller knows."""
        step = Step(now_ms)
        self._rebalance(step)
        return step

    def close(self, now_ms: int, error: int = refusals.NOT_COORDINATOR) -> Step:
        """The group ends here, or goes on elsewhere; whoever waits is to look for its coordinator anew, or so."""
        step = Step(now_ms)
        self.state = State.DEAD
        self.expected.clear()
        self._join_deadline_ms = self._sync_deadline_ms = None
        for member in self.members:
            step.dismiss(member, error)
        self.members = Members()
        return step

    def _expire(self, member: Member, reason: str, step: Step) -> None:
        step.tell("member_expired", f"{member.member_id} {reason}")
        self._remove(member, step)

    def _remove(self, member: Member, step: Step) -> None:
        step.dismiss(member, refusals.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        step.gone.append(member.member_id)
        self._sync_awaited.discard(member.member_id)


def _nothing() -> None:
    """Nobody waits for this."""
