"""Runs the machines of classic groups: it keeps waiting requests, commits entries, and expires silent members.

The rules are in `semel.log.core.groups`. This file has what the rules must not know: the exchanges that the tokens
stand for, the journal that stores the proposed entries, and the alarm for the deadlines of members. Each step is
carried out as a whole before the next one begins, so no machine ever sees half of another step.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Generic, TypeVar, cast
from uuid import uuid4

from semel.log.broker.consumer_groups import ConsumerGroupCoordinator
from semel.log.broker.exchange import Exchange
from semel.log.broker.limits import Limits
from semel.log.broker.members import MemberName, Members
from semel.log.broker.runtime import Runtime
from semel.log.broker.share_groups import ShareGroupCoordinator
from semel.log.core.groups import classic
from semel.log.core.groups.classic_admission import growth_bytes
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.classic_steps import (
    ClassicRules,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Step,
    SyncAnswer,
    SyncRequest,
)
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.share import ShareGroup
from semel.wire.refusals import (
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Refused,
)
from semel.wire.steps import Steps, finish

# The work of one answer, besides the elements in it.
_ANSWER_PIECES: Final = 5

A = TypeVar("A", bound=JoinAnswer | SyncAnswer)


class WaitingRequest(Generic[A]):
    """A JoinGroup or SyncGroup request that may wait: the rules hold it as a token, and it sends the answer.

    Two thousand members may be answered at once. So each answer is first decided, and later sent in a turn of its own.
    """

    __slots__ = ("_decided", "_exchange", "_forget", "_is_answered", "_otherwise", "_reply")

    def __init__(
        self,
        exchange: Exchange,
        forget: "Callable[[WaitingRequest[A]], None]",
        reply: Callable[[A], Steps[None]],
        otherwise: A,
    ) -> None:
        """`forget` removes this from the group. If the client cannot wait any longer, the answer is `otherwise`: to try
        again.
        """
        self._exchange = exchange
        self._forget = forget
        self._reply = reply
        self._otherwise = otherwise
        self._decided: A | None = None
        self._is_answered = False

    def answer(self, answer: A) -> None:
        finish(self.answered(answer))

    def decide(self, answer: A) -> None:
        """This will be the answer."""
        self._decided = answer

    def answered(self, answer: A) -> Steps[None]:
        """Send the answer, in steps, unless the request has been answered or given up."""
        if not self._is_answered:
            self._is_answered = True
            self._exchange.unpark(self)
            yield from self._reply(answer)

    def wait(self) -> None:
        """Wait for a later step, unless the request's own step has answered it."""
        if not self._is_answered:
            self._exchange.park(self)

    def give_up(self) -> None:
        self._is_answered = True
        self._exchange.unpark(self)
        self._forget(self)

    def answer_now(self) -> None:
        if self._decided is None:
            self._forget(self)
        self.answer(self._otherwise if self._decided is None else self._decided)


class ClassicGroupCoordinator:
    """The classic groups of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        members: Members,
        consumer_groups: ConsumerGroupCoordinator,
        share_groups: ShareGroupCoordinator,
    ) -> None:
        """`members` are those of all groups. `consumer_groups` come first, because a classic member may be in one of
        them.
        """
        self._runtime = runtime
        self._state = runtime.log.state
        self._members = members
        self._consumer_groups = consumer_groups
        self._share_groups = share_groups
        consumer_groups.classic = self
        self._rules = _rules_of(runtime.limits)
        self._deadlines = runtime.alarm.deadlines(self._pass_time)

    def begin(self) -> None:
        """The log was recovered: begin the session of every member."""
        for group in list(self._state.groups):
            if isinstance(group.machine, ClassicGroup):
                self._begin(group.machine)

    def _begin(self, machine: ClassicGroup) -> None:
        now_ms = self._runtime.clock.steady_ms()
        machine.begin(now_ms)
        if machine.is_to_rebalance:
            self._carry_out(machine, classic.begin_rebalance(machine, now_ms))
        else:
            self._note(machine)

    def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR; clients look for their coordinator until it is back."""
        for group in list(self._state.groups):
            if isinstance(group.machine, ClassicGroup):
                self._carry_out(group.machine, classic.close(group.machine, self._runtime.clock.steady_ms()))

    # -- requests -----------------------------------------------------------------------------------------------

    def join(
        self, exchange: Exchange, name: str, request: JoinRequest, reply: Callable[[JoinAnswer], Steps[None]]
    ) -> None:
        """Answer a JoinGroup, now or later."""
        try_again = JoinAnswer(REBALANCE_IN_PROGRESS, request.member_id)
        waiter = WaitingRequest(exchange, self._forgetting(name), reply, try_again)
        try:
            self._check_join(name, request)
            consumer_group = self._consumer_groups.with_members(name)
            if consumer_group is not None:
                waiter.answer(self._consumer_groups.join(name, consumer_group, request))
                self.note_heard(exchange, name, request.member_id or request.new_member_id)
                return
            self._check_size(name, request)
            with self._members.founding(name, exchange.address):
                machine = self._existing(name) if request.member_id else self._joinable(name)
        except Refused as refused:
            waiter.answer(JoinAnswer(refused.error, request.member_id))
            return
        self._carry_out(machine, classic.join(machine, request, waiter, self._runtime.clock.steady_ms(), self._rules))
        self.note_heard(exchange, name, request.member_id or request.new_member_id)
        waiter.wait()

    def sync(
        self, exchange: Exchange, name: str, request: SyncRequest, reply: Callable[[SyncAnswer], Steps[None]]
    ) -> None:
        """Answer a SyncGroup, now or later."""
        waiter = WaitingRequest(exchange, self._forgetting(name), reply, SyncAnswer(REBALANCE_IN_PROGRESS))
        self._sync(name, request, waiter)
        self.note_heard(exchange, name, request.member_id)

    def _sync(self, name: str, request: SyncRequest, waiter: WaitingRequest[SyncAnswer]) -> None:
        try:
            consumer_group = self._consumer_groups.with_members(name)
            if consumer_group is not None:
                waiter.answer(self._consumer_groups.sync(name, consumer_group, request))
                return
            machine = self._existing(name)
        except Refused as refused:
            waiter.answer(SyncAnswer(refused.error))
            return
        self._carry_out(machine, classic.sync(machine, request, waiter, self._runtime.clock.steady_ms()))
        waiter.wait()

    def heartbeat(
        self, exchange: Exchange, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """`Refused` if the member is unknown, or must join again."""
        self.note_heard(exchange, name, member_id)
        consumer_group = self._consumer_groups.with_members(name)
        if consumer_group is not None:
            self._consumer_groups.classic_heartbeat(name, consumer_group, member_id, instance_id, generation)
        else:
            classic.heartbeat(self._existing(name), member_id, instance_id, generation, self._runtime.clock.steady_ms())

    def leave(self, name: str, leavers: Iterable[Leaver]) -> list[int]:
        """Remove members; return the error code for each."""
        consumer_group = self._consumer_groups.with_members(name)
        if consumer_group is not None:
            return self._consumer_groups.leave(name, consumer_group, leavers)
        machine = self._existing(name)
        step = classic.leave(machine, leavers, self._runtime.clock.steady_ms())
        self._carry_out(machine, step)
        return step.left

    def hear(self, exchange: Exchange, name: str, member_id: str) -> None:
        """A member has sent a request other than a heartbeat, so it is alive."""
        machine = self._machine(name)
        member = None if machine is None else machine.members.get(member_id)
        if machine is not None and member is not None:
            machine.hear(member, self._runtime.clock.steady_ms())
        self.note_heard(exchange, name, member_id)

    def _forgetting(self, name: str) -> Callable[[WaitingRequest[A]], None]:
        """A function that removes a waiting request from the group, because its client has disconnected."""

        def forget(waiter: WaitingRequest[A]) -> None:
            machine = self._machine(name)
            if machine is not None:
                classic.forget(machine, waiter, self._runtime.clock.steady_ms())
                self._note(machine)

        return forget

    # -- connections --------------------------------------------------------------------------------------------

    def note_heard(self, exchange: Exchange, name: str, member_id: str) -> None:
        """Note that this member uses this connection. If the connection was lost while its request was served, the
        member may have died.
        """
        if self._machine_with(name, member_id) is not None:
            self._members.note_heard(MemberName(name, member_id), exchange.connection_number)
            if exchange.is_lost:
                self.connection_lost(exchange.connection_number)

    def connection_lost(self, connection_number: int) -> None:
        """Shorten the sessions of the members that last used this connection: they may have died."""
        now_ms = self._runtime.clock.steady_ms()
        for name, member_id in self._members.connection_lost(connection_number):
            machine = self._machine_with(name, member_id)
            if isinstance(machine, ConsumerGroup):
                self._consumer_groups.connection_lost(name, machine, member_id)
            elif isinstance(machine, ShareGroup):
                self._share_groups.connection_lost(name, machine, member_id)
            elif machine is not None:
                deadline_ms = classic.connection_lost(machine, member_id, now_ms, self._rules)
                self._deadlines.note(name, deadline_ms)

    def _machine_with(self, name: str, member_id: str) -> ClassicGroup | ConsumerGroup | ShareGroup | None:
        group = self._state.groups.named(name)
        machine = None if group is None else group.machine
        if isinstance(machine, ClassicGroup | ConsumerGroup | ShareGroup) and member_id in machine.members:
            return machine
        return None

    # -- changing to the new protocol, and back -----------------------------------------------------------------

    def hand_over(self, machine: ClassicGroup) -> None:
        """The group has changed to the new protocol: answer its waiting members that they must join again."""
        self._carry_out(machine, classic.close(machine, self._runtime.clock.steady_ms(), REBALANCE_IN_PROGRESS))

    def take_over(self, name: str) -> None:
        """The group has changed to the classic protocol: its members must join again and assign the partitions."""
        self._begin(self._state.groups.classic(name))

    def _check_join(self, name: str, request: JoinRequest) -> None:
        _check_group_id(name)
        rules = self._rules
        if not rules.session_timeout_min_ms <= request.session_timeout_ms <= rules.session_timeout_max_ms:
            raise Refused(
                INVALID_SESSION_TIMEOUT,
                f"a session timeout must be from {rules.session_timeout_min_ms} to {rules.session_timeout_max_ms} ms",
            )

    def _check_size(self, name: str, request: JoinRequest) -> None:
        machine = self._machine(name)
        self._members.check_growth(request.brought_bytes if machine is None else growth_bytes(machine, request))

    def _machine(self, name: str) -> ClassicGroup | None:
        group = self._state.groups.named(name)
        machine = None if group is None else group.machine
        return machine if isinstance(machine, ClassicGroup) else None

    def _joinable(self, name: str) -> ClassicGroup:
        """The group that a member joins; it is created if it does not exist."""
        groups = self._state.groups
        groups.check_addable(name)
        group = groups.named(name)
        is_other = group is not None and not isinstance(group.machine, ClassicGroup)
        if group is not None and is_other and (not group.is_empty or isinstance(group.machine, ShareGroup)):
            raise Refused(INCONSISTENT_GROUP_PROTOCOL, f"the members of group '{name}' speak another protocol")
        return groups.classic(name)

    def _existing(self, name: str) -> ClassicGroup:
        _check_group_id(name)
        machine = self._machine(name)
        if machine is None:
            raise Refused(UNKNOWN_MEMBER_ID, f"group '{name}' has no members")
        return machine

    # -- steps --------------------------------------------------------------------------------------------------

    def _carry_out(self, machine: ClassicGroup, step: Step) -> None:
        """Commit the entry that a step proposes, then send the answers of the step."""
        runtime, proposal = self._runtime, step.proposal
        if proposal is not None:
            try:
                # The retention time of offsets begins at `at_ms`. It outlives a restart, so it is a time of day.
                runtime.commit(replace(proposal.entry, at_ms=runtime.clock.now_ms()))
            except (OSError, ValueError) as error:
                # Waiting members need an answer: the disk is full, or the entry cannot follow the group's state.
                proposal.refused()
                if isinstance(error, ValueError):
                    runtime.tell_of_slip("request_failed", error, group=machine.name)
            else:
                proposal.kept()
        answers = [(cast("WaitingRequest[JoinAnswer | SyncAnswer]", waiter), answer) for waiter, answer in step.answers]
        for waiting, answer in answers:
            waiting.decide(answer)
        runtime.turns.begin(_send(answers), runtime.note_end)
        for event in step.events:
            self._members.tell(
                event.name,
                machine.name,
                generation=machine.generation,
                members=len(machine.members),
                reason=event.reason,
            )
        for member_id in step.gone:
            self._members.forget(MemberName(machine.name, member_id))
        group = self._state.groups.named(machine.name)
        if group is not None:
            self._state.groups.drop(group)
        self._note(machine)

    def _note(self, machine: ClassicGroup) -> None:
        """Note the size of a group, and its next deadline."""
        self._members.note_size(machine.name, machine.size_bytes)
        self._deadlines.note(machine.name, classic.next_deadline_ms(machine))

    def _pass_time(self, name: str, now_ms: int) -> Steps[None]:
        """Do the work of a group's deadline."""
        machine = self._machine(name)
        if machine is not None:
            self._carry_out(machine, classic.pass_time(machine, now_ms))
        yield 1


def _send(answers: Iterable[tuple[WaitingRequest[JoinAnswer | SyncAnswer], JoinAnswer | SyncAnswer]]) -> Steps[None]:
    for waiting, answer in answers:
        yield from waiting.answered(answer)
        yield _ANSWER_PIECES


def new_member_id(prefix: str) -> str:
    """A new member id that begins with the client's id."""
    return f"{prefix}-{uuid4()}"


def _check_group_id(name: str) -> None:
    if not name:
        raise Refused(INVALID_GROUP_ID, "a group needs a name")


def _rules_of(limits: Limits) -> ClassicRules:
    return ClassicRules(
        members_max=limits.group_members_max,
        group_bytes_max=limits.group_bytes_max,
        session_timeout_min_ms=limits.group_session_timeout_ms_min,
        session_timeout_max_ms=limits.group_session_timeout_ms_max,
        initial_rebalance_delay_ms=limits.group_initial_rebalance_delay_ms,
        new_member_join_timeout_ms=limits.group_new_member_join_timeout_ms,
        lost_connection_session_percent=limits.group_lost_connection_session_percent,
    )
