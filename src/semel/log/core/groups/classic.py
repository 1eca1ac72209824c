"""The classic protocol of consumer groups: members join, the leader assigns partitions, and each learns its own.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
               members join          members sync          members send heartbeats

A generation leaves out members that join too late, and has a higher number than all before it. One entry,
`ClassicGroupChanged`, stores the generation with its members and assignments; a step proposes it when the leader has
assigned, or when no member is left. The members that the group waits for, and the deadlines (`group.rebalance`), are
not stored: after a restart, `begin` gives every member its whole session again.

Each function is one step of a group. An opaque token of the caller stands for a request that has to wait. A step
answers some of the waiting requests, each once, and may propose an entry. Before the next step the caller commits and
applies the entry, or reports that it could not. This file must never look into the bytes that members exchange, except
for the names of topics.
"""

from collections.abc import Iterable
from typing import Final

from semel.log.core.groups.classic_admission import check_join
from semel.log.core.groups.classic_group import ClassicGroup, State
from semel.log.core.groups.classic_members import Member, Members, Waiter
from semel.log.core.groups.classic_steps import (
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
from semel.wire import refusals
from semel.wire.refusals import Refused

# If there are only static members and none has joined, the group waits at least this long before it looks again.
NOBODY_JOINED_MS_MIN: Final = 1_000


# -- joining ------------------------------------------------------------------------------------------------


def join(group: ClassicGroup, request: JoinRequest, waiter: Waiter, now_ms: int, rules: ClassicRules) -> Step:
    """A member joins. The answer comes when all members have joined, or when the deadline for the others has passed."""
    step = Step(now_ms)
    try:
        check_join(group, request, rules)
        _join(group, request, waiter, step, rules)
    except Refused as refused:
        step.answer(waiter, JoinAnswer(refused.error, request.member_id))
    return step


def _join(group: ClassicGroup, request: JoinRequest, waiter: Waiter, step: Step, rules: ClassicRules) -> None:
    if request.member_id == NO_MEMBER_ID:
        if request.instance_id is not None:
            _join_static(group, request, request.instance_id, waiter, step, rules)
        elif request.requires_known_id:
            group.expected[request.new_member_id] = step.now_ms + request.session_timeout_ms
            step.answer(waiter, JoinAnswer(refusals.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            _add(group, request, request.new_member_id, waiter, step, rules)
    elif request.member_id in group.expected and request.instance_id is None:
        del group.expected[request.member_id]
        _add(group, request, request.member_id, waiter, step, rules)
    else:
        _join_again(group, request, waiter, step)


def _join_static(
    group: ClassicGroup, request: JoinRequest, instance_id: str, waiter: Waiter, step: Step, rules: ClassicRules
) -> None:
    """A static member has started. It is new, or it takes its old place, if possible without a rebalance. The broker
    stores the new id before it sends it: otherwise, after a restart, the broker would know only the old id, and would
    fence the member.
    """
    old = group.members.of_instance(instance_id)
    if old is not None and group.state is State.STABLE:
        leader_before = group.members.leader or NO_MEMBER_ID
        member = _succeed(group, old, request, step.now_ms)
        if group.members.select_protocol() == group.protocol:
            _dismiss_predecessor(old, old.member_id, step)
            _propose_replacement(group, old, member, request, leader_before, waiter, step)
            return
        _replace(group, member, old)
    old_id = NO_MEMBER_ID if old is None else old.member_id

    def kept() -> None:
        # The entry may have replaced the `Member`.
        predecessor = group.members.of_instance(instance_id)
        if predecessor is None:
            _add(group, request, request.new_member_id, waiter, step, rules)
            return
        member = _succeed(group, predecessor, request, step.now_ms)
        _dismiss_predecessor(predecessor, old_id, step)
        member.join_waiter = waiter
        _rebalance(group, step)

    entry = group.to_store_instead(instance_id, request.new_member_id, step.now_ms)
    if entry is None:
        kept()
    else:
        refusal = JoinAnswer(refusals.COORDINATOR_NOT_AVAILABLE)
        step.proposal = Proposal(entry, kept, lambda: step.answer(waiter, refusal))


def _succeed(group: ClassicGroup, old: Member, request: JoinRequest, now_ms: int) -> Member:
    """Let the static member that has started take the place of the former one."""
    member = request.as_member(request.new_member_id)
    member.assignment = old.assignment
    group.hear(member, now_ms)
    _replace(group, old, member)
    return member


def _dismiss_predecessor(old: Member, old_id: str, step: Step) -> None:
    step.gone.append(old_id)
    step.dismiss(old, refusals.FENCED_INSTANCE_ID)


def _propose_replacement(
    group: ClassicGroup,
    old: Member,
    member: Member,
    request: JoinRequest,
    leader_before: str,
    waiter: Waiter,
    step: Step,
) -> None:
    def kept() -> None:
        answer = _join_answer(group, member)
        if request.may_skip_assignment:
            # The leader may check whether topics have changed, and join again if so; but it must not assign now.
            answer = answer._replace(skip_assignment=group.members.leader == member.member_id)
        else:
            # An older client assigns as soon as an answer names it as the leader, so the answer names its predecessor.
            answer = answer._replace(leader=leader_before, members=())
        step.answer(waiter, answer)

    def refused() -> None:
        _replace(group, member, old)
        step.answer(waiter, JoinAnswer(refusals.COORDINATOR_NOT_AVAILABLE))

    assignments = {one.member_id: one.assignment for one in group.members}
    step.proposal = Proposal(group.to_store(assignments, step.now_ms), kept, refused)


def _replace(group: ClassicGroup, old: Member, member: Member) -> None:
    group.members.replace(old, member)
    if old.member_id in group.rebalance.sync_awaited:
        group.rebalance.sync_awaited.remove(old.member_id)
        group.rebalance.sync_awaited.add(member.member_id)


def _add(
    group: ClassicGroup, request: JoinRequest, member_id: str, waiter: Waiter, step: Step, rules: ClassicRules
) -> None:
    if not len(group.members):
        group.protocol_type = request.protocol_type
    member = request.as_member(member_id)
    member.is_new = True
    member.join_waiter = waiter
    # A new member sends no heartbeats before it knows its generation, and gives up waiting after this long.
    member.deadline_ms = step.now_ms + rules.new_member_join_timeout_ms
    group.rebalance.newcomer_seen = True
    group.members.add(member)
    if group.state is State.EMPTY:
        _prepare_initial_rebalance(group, step, rules.initial_rebalance_delay_ms)
    else:
        _rebalance(group, step)


def _join_again(group: ClassicGroup, request: JoinRequest, waiter: Waiter, step: Step) -> None:
    member = group.member(request.member_id, request.instance_id)
    is_changed = list(member.protocols.items()) != list(request.protocols.items())
    # The leader joins again for a reason that the others do not know, such as more partitions.
    leads = group.state is State.STABLE and group.members.leader == member.member_id
    if group.state is not State.PREPARING_REBALANCE and not is_changed and not leads:
        # The member repeats its request, for example because the answer was lost.
        group.hear(member, step.now_ms)
        step.answer(waiter, _join_answer(group, member))
        return
    if member.join_waiter is not None:
        step.answer(member.join_waiter, JoinAnswer(refusals.REBALANCE_IN_PROGRESS, member.member_id))
    group.members.change_protocols(member, request.protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.join_waiter = waiter
    _rebalance(group, step)


def _join_answer(group: ClassicGroup, member: Member) -> JoinAnswer:
    leader = group.members.leader or NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    if leader == member.member_id:
        protocol = group.protocol or ""
        members = tuple(
            JoinedMember(one.member_id, one.instance_id, one.protocols.get(protocol, b"")) for one in group.members
        )
    return JoinAnswer(
        refusals.NONE, member.member_id, group.generation, group.protocol_type, group.protocol, leader, False, members
    )


# -- rebalancing --------------------------------------------------------------------------------------------


def _rebalance(group: ClassicGroup, step: Step) -> None:
    """A member joined, left or changed: all members must join again, unless a rebalance has begun already."""
    if group.state is State.PREPARING_REBALANCE:
        _complete_join_if_all_have(group, step)
    else:
        _prepare_rebalance(group, step)


def _prepare_rebalance(group: ClassicGroup, step: Step) -> None:
    _stop_syncing(group, refusals.REBALANCE_IN_PROGRESS, step)
    group.state = State.PREPARING_REBALANCE
    group.rebalance.is_initial = False
    group.rebalance.join_deadline_ms = step.now_ms + group.members.rebalance_timeout_ms
    _complete_join_if_all_have(group, step)


def _prepare_initial_rebalance(group: ClassicGroup, step: Step, delay_ms: int) -> None:
    """The first member has joined, and others are likely to start at the same time: wait a little for them."""
    group.state = State.PREPARING_REBALANCE
    group.rebalance.is_initial = True
    group.rebalance.newcomer_seen = False
    group.rebalance.delay_ms = delay_ms
    group.rebalance.extension_ms = max(group.members.rebalance_timeout_ms - delay_ms, 0)
    group.rebalance.join_deadline_ms = step.now_ms + delay_ms


def _end_initial_delay(group: ClassicGroup, step: Step) -> None:
    if not group.rebalance.newcomer_seen or not group.rebalance.extension_ms:
        _complete_join(group, step)
        return
    group.rebalance.newcomer_seen = False
    delay_ms = min(group.rebalance.delay_ms, group.rebalance.extension_ms)
    group.rebalance.extension_ms = max(group.rebalance.extension_ms - group.rebalance.delay_ms, 0)
    group.rebalance.join_deadline_ms = step.now_ms + delay_ms


def _complete_join_if_all_have(group: ClassicGroup, step: Step) -> None:
    if group.rebalance.is_initial or group.expected or group.members.waiting_to_join < len(group.members):
        return
    _complete_join(group, step)


def _complete_join(group: ClassicGroup, step: Step) -> None:
    """Begin the next generation with the members that have joined, and with static members, which may be restarting."""
    for member in [one for one in group.members if one.join_waiter is None and one.instance_id is None]:
        _expire(group, member, "did not join again in time", step)
    if len(group.members) and not group.members.elect_leader():
        group.rebalance.join_deadline_ms = step.now_ms + max(group.members.rebalance_timeout_ms, NOBODY_JOINED_MS_MIN)
        return
    group.rebalance.join_deadline_ms = None
    group.rebalance.is_initial = False
    group.generation += 1
    if not len(group.members):
        _become_empty(group, step)
        return
    group.protocol = group.members.select_protocol()
    group.state = State.COMPLETING_REBALANCE
    for member in group.members:
        if member.join_waiter is not None:
            step.answer(member.join_waiter, _join_answer(group, member))
            member.join_waiter = None
        member.is_new = False
        group.hear(member, step.now_ms)
        group.rebalance.sync_awaited.add(member.member_id)
    group.rebalance.sync_deadline_ms = step.now_ms + group.members.rebalance_timeout_ms


def _become_empty(group: ClassicGroup, step: Step) -> None:
    group.state = State.EMPTY
    group.protocol = None
    step.tell("group_emptied", "all members have left or were silent for too long")
    # If the entry cannot be written, the members come back after a restart, stay silent, and expire: nothing is lost.
    step.proposal = Proposal(group.to_store({}, step.now_ms), _nothing, _nothing)


# -- syncing ------------------------------------------------------------------------------------------------


def sync(group: ClassicGroup, request: SyncRequest, waiter: Waiter, now_ms: int) -> Step:
    """A member requests its assignment. The answer is sent when the leader's assignments are stored."""
    step = Step(now_ms)
    try:
        _sync(group, request, waiter, step)
    except Refused as refused:
        step.answer(waiter, SyncAnswer(refused.error))
    return step


def _sync(group: ClassicGroup, request: SyncRequest, waiter: Waiter, step: Step) -> None:
    member = group.member_of_generation(request.member_id, request.instance_id, request.generation)
    group.hear(member, step.now_ms)
    request.check_protocol(group.protocol_type, group.protocol)
    if group.state is State.PREPARING_REBALANCE:
        raise Refused(refusals.REBALANCE_IN_PROGRESS, "the members are joining again")
    group.rebalance.sync_awaited.discard(member.member_id)
    if not group.rebalance.sync_awaited:
        group.rebalance.sync_deadline_ms = None
    if group.state is State.STABLE:
        step.answer(waiter, _sync_answer(group, member))
        return
    if member.sync_waiter is not None:
        step.answer(member.sync_waiter, SyncAnswer(refusals.REBALANCE_IN_PROGRESS))
    member.sync_waiter = waiter
    if group.members.leader == member.member_id:
        entry = group.to_store(request.assignments, step.now_ms)
        step.proposal = Proposal(entry, lambda: _share(group, step), lambda: _keep_nothing(group, step))


def _share(group: ClassicGroup, step: Step) -> None:
    """The assignments are stored: answer every member that waits for its own."""
    for member in group.members:
        if member.sync_waiter is not None:
            step.answer(member.sync_waiter, _sync_answer(group, member))
            member.sync_waiter = None
            group.hear(member, step.now_ms)
    step.tell("group_rebalanced", f"{group.members.leader} assigned by {group.protocol}")


def _keep_nothing(group: ClassicGroup, step: Step) -> None:
    """The assignments could not be stored, so no member may act upon them: rebalance again."""
    _stop_syncing(group, refusals.COORDINATOR_NOT_AVAILABLE, step)
    _prepare_rebalance(group, step)


def _stop_syncing(group: ClassicGroup, error: int, step: Step) -> None:
    for member in group.members:
        if member.sync_waiter is not None:
            step.answer(member.sync_waiter, SyncAnswer(error))
            member.sync_waiter = None
            group.hear(member, step.now_ms)
    group.rebalance.sync_awaited.clear()
    group.rebalance.sync_deadline_ms = None


def _sync_answer(group: ClassicGroup, member: Member) -> SyncAnswer:
    return SyncAnswer(refusals.NONE, group.protocol_type, group.protocol, member.assignment)


# -- staying, leaving, falling silent -----------------------------------------------------------------------


def heartbeat(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
    """A member sends a heartbeat. `Refused` if it is not a member of this generation, or must join again."""
    if member_id == NO_MEMBER_ID:
        # Such a client must hear that it has to join again, and not that another process has taken its instance id:
        # librdkafka gives up its member id with its session, goes on with heartbeats, and ends when it is fenced.
        instance_id = None
    group.hear(group.member_of_generation(member_id, instance_id, generation), now_ms)
    if group.state is State.PREPARING_REBALANCE:
        raise Refused(refusals.REBALANCE_IN_PROGRESS, "the members are joining again")


def leave(group: ClassicGroup, leavers: Iterable[Leaver], now_ms: int) -> Step:
    step = Step(now_ms)
    for leaver in leavers:
        try:
            _leave(group, leaver, step)
            step.left.append(refusals.NONE)
        except Refused as refused:
            step.left.append(refused.error)
    if step.gone:
        _rebalance(group, step)
    elif refusals.NONE in step.left and group.state is State.PREPARING_REBALANCE:
        # Clients with an id, which have not joined yet, have left: the group may have waited for them.
        _complete_join_if_all_have(group, step)
    return step


def _leave(group: ClassicGroup, leaver: Leaver, step: Step) -> None:
    if group.expected.pop(leaver.member_id, None) is not None:
        return
    member: Member | None
    if leaver.member_id == NO_MEMBER_ID and leaver.instance_id is not None:
        member = group.members.of_instance(leaver.instance_id)
        if member is None:
            raise Refused(refusals.UNKNOWN_MEMBER_ID, "no member has this instance id")
    else:
        member = group.member(leaver.member_id, leaver.instance_id)
    _remove(group, member, step)


def forget(group: ClassicGroup, waiter: Waiter, now_ms: int) -> None:
    """The connection of a waiting request was closed. The member must come back within its session."""
    for member in group.members:
        if waiter in (member.join_waiter, member.sync_waiter):
            member.join_waiter = member.sync_waiter = None
            member.is_new = False
            group.hear(member, now_ms)


def connection_lost(group: ClassicGroup, member_id: str, now_ms: int, rules: ClassicRules) -> int | None:
    """The connection over which a member last spoke was closed. Return the member's new deadline, if it is earlier.

    A static member may be restarting, and so keeps its whole session. A member with a waiting request has another
    connection; otherwise `forget` would have been called first.
    """
    member = group.members.get(member_id)
    if member is None or member.instance_id is not None or member.is_waiting:
        return None
    deadline_ms = now_ms + member.session_timeout_ms * rules.lost_connection_session_percent // 100
    if deadline_ms >= member.deadline_ms:
        return None
    member.deadline_ms = deadline_ms
    member.has_lost_connection = True
    return deadline_ms


def next_deadline_ms(group: ClassicGroup) -> int | None:
    """The next time at which `pass_time` has something to do."""
    deadlines = [member.deadline_ms for member in group.members if member.is_timed]
    deadlines += group.expected.values()
    deadlines += [at for at in (group.rebalance.join_deadline_ms, group.rebalance.sync_deadline_ms) if at is not None]
    return min(deadlines, default=None)


def pass_time(group: ClassicGroup, now_ms: int) -> Step:
    """Remove the members whose session has expired, and stop waiting for those that are late to join or sync."""
    step = Step(now_ms)
    if group.state is State.DEAD:
        return step
    silent = [member_id for member_id, deadline_ms in group.expected.items() if deadline_ms <= now_ms]
    for member_id in silent:
        del group.expected[member_id]
    overdue = [member for member in group.members if member.is_timed and member.deadline_ms <= now_ms]
    for member in overdue:
        silence = "after its connection was lost" if member.has_lost_connection else "for too long"
        _expire(group, member, f"was silent {silence}", step)
    if overdue or (silent and group.state is State.PREPARING_REBALANCE):
        _rebalance(group, step)
    if group.rebalance.join_deadline_ms is not None and group.rebalance.join_deadline_ms <= now_ms:
        if group.rebalance.is_initial:
            _end_initial_delay(group, step)
        else:
            _complete_join(group, step)
    if group.rebalance.sync_deadline_ms is not None and group.rebalance.sync_deadline_ms <= now_ms:
        for member in [one for one in group.members if one.member_id in group.rebalance.sync_awaited]:
            _expire(group, member, "did not ask for its assignment in time", step)
        _prepare_rebalance(group, step)
    return step


def begin_rebalance(group: ClassicGroup, now_ms: int) -> Step:
    """Make all members join again, for a reason that the caller names."""
    step = Step(now_ms)
    _rebalance(group, step)
    return step


def close(group: ClassicGroup, now_ms: int, error: int = refusals.NOT_COORDINATOR) -> Step:
    """The broker stops, or the group changes its protocol. Every waiting request is answered with `error`."""
    step = Step(now_ms)
    group.state = State.DEAD
    group.expected.clear()
    group.rebalance.join_deadline_ms = group.rebalance.sync_deadline_ms = None
    for member in group.members:
        step.dismiss(member, error)
    group.members = Members()
    return step


def _expire(group: ClassicGroup, member: Member, reason: str, step: Step) -> None:
    step.tell("member_expired", f"{member.member_id} {reason}")
    _remove(group, member, step)


def _remove(group: ClassicGroup, member: Member, step: Step) -> None:
    step.dismiss(member, refusals.UNKNOWN_MEMBER_ID)
    group.members.remove(member)
    step.gone.append(member.member_id)
    group.rebalance.sync_awaited.discard(member.member_id)


def _nothing() -> None:
    """Does nothing; for a proposal whose outcome no request waits for."""
