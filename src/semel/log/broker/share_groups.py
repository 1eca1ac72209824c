"""Runs the share groups: their members, and what these acquire and acknowledge.

The rules are in `semel.log.core.groups.share` and `share_partition`. What one request changes in share partitions is
one entry, or several if that is much, and its answer waits until they are durable, so no record is delivered whose
delivery is not counted. The holders of records are in memory only: the locks have an alarm, the end of a session
releases what it holds, and at a start every lock has timed out. This file must never read a record.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeGuard

from semel.log.broker.assigned_groups import AssignedGroupCoordinator
from semel.log.broker.decisions import SHARED_TOLD_MAX, Decisions, SharedDecision
from semel.log.broker.limits import group_rules
from semel.log.broker.members import Members
from semel.log.broker.runtime import Runtime
from semel.log.broker.share_sessions import SharerName, ShareSession, ShareSessions
from semel.log.core.access import Principal
from semel.log.core.entries import (
    MembersChanged,
    PartitionName,
    ShareBatch,
    ShareChange,
    ShareStart,
    ShareStartsSet,
    ShareStatesChanged,
)
from semel.log.core.groups import group_configs
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.consumer_members import JOIN_EPOCH
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.consumer_topics import Sight
from semel.log.core.groups.share import ShareGroup
from semel.log.core.groups.share_partition import (
    ACCEPT,
    AVAILABLE,
    REJECT,
    RELEASE,
    RENEW,
    Ack,
    LogSpan,
    Outcome,
    SharePartition,
    ShareRules,
    Wish,
)
from semel.wire.refusals import GROUP_ID_NOT_FOUND, INVALID_RECORD_STATE, NON_EMPTY_GROUP, POLICY_VIOLATION, Refused
from semel.wire.steps import APPEND_PIECES, Steps

# Share partitions that begin in one entry: some milliseconds.
_STARTS_AT_ONCE: Final = 200
# Runs that are looked at or changed in one entry, beside those of one share partition.
_RUNS_AT_ONCE: Final = 2_000
# Runs that are looked at for one piece of work.
_RUNS_PER_PIECE: Final = 20
# As far as a share partition always gets, even if all others together have as many records in flight as they may.
_RECORDS_MIN: Final = 10


class Reading(NamedTuple):
    """What the log has in a partition from offset `begin` on."""

    name: PartitionName
    begin: int
    log_start: int
    spans: Sequence[LogSpan]


class ShareGroupCoordinator(AssignedGroupCoordinator[ShareGroup]):
    """The share groups of one broker."""

    def __init__(self, runtime: Runtime, members: Members, sight: Sight, decisions: Decisions) -> None:
        super().__init__(runtime, members, sight)
        self._decisions = decisions
        limits = runtime.limits
        self._group_rules = group_rules(limits)
        self.sessions = ShareSessions(limits.share_sessions_max, limits.share_session_partitions_max)
        self._stops = False
        # The share partitions of each group in which a lock may time out: all of those in which somebody holds records.
        self._locked: dict[str, dict[PartitionName, None]] = {}
        self._locks = runtime.alarm.deadlines(self._pass_lock_time)

    # -- what differs from other groups that the broker assigns -------------------------------------------------

    def is_ours(self, machine: object) -> TypeGuard[ShareGroup]:
        return isinstance(machine, ShareGroup)

    def _new(self) -> ShareGroup:
        return ShareGroup(self._state.groups.shares)

    def rules_of(self, name: str) -> MemberRules:
        return group_configs.sharers_with(self._group_rules, self._state.groups.configs_of(name))

    def share_rules_of(self, name: str) -> ShareRules:
        """The rules for the records of a group."""
        rules = group_configs.shares_with(self._group_rules, self._state.groups.configs_of(name))
        return rules if self._records_left() else replace(rules, locks_max=min(rules.locks_max, _RECORDS_MIN))

    def _records_left(self) -> int:
        """How many more records all groups together may have in flight."""
        return max(self._runtime.limits.share_records_max - self._state.groups.shares.records, 0)

    def _machine(self, name: str, beat: Heartbeat) -> tuple[ShareGroup, MembersChanged | None]:
        if beat.epoch != JOIN_EPOCH or self._state.groups.named(name) is not None:
            return self.existing(name), None
        self._state.groups.check_addable(name)
        return self._seeing(self._new()), None

    def existing(self, name: str) -> ShareGroup:
        """The share group of this name. As in Apache Kafka, no group of another type is."""
        machine = self._existing(name)
        if machine is None:
            raise Refused(GROUP_ID_NOT_FOUND, f"there is no share group '{name}'")
        return machine

    def begin(self) -> None:
        super().begin()
        for group in list(self._state.groups):
            if isinstance(group.machine, ShareGroup):
                for name, partition in group.machine.partitions():
                    if partition.has_acquired:
                        self._locked.setdefault(group.name, {})[name] = None
                        self._locks.note(group.name, 0)

    # -- share partitions ---------------------------------------------------------------------------------------

    def begin_partitions(self, name: str, starts: Sequence[tuple[PartitionName, int]]) -> Steps[None]:
        """Begin those of these share partitions that nobody has used yet, at these offsets."""
        for first in range(0, len(starts), _STARTS_AT_ONCE):
            machine = self.existing(name)
            some = starts[first : first + _STARTS_AT_ONCE]
            new = self._in_the_log(
                ShareStart(*place, offset) for place, offset in some if machine.partition(place) is None
            )
            if new:
                self._check_space(new)
                self._runtime.commit(ShareStartsSet(name, new))
            yield APPEND_PIECES + len(some)

    def set_starts(self, name: str, starts: Sequence[ShareStart], address: str, *, may_create: bool) -> Steps[None]:
        """Begin share partitions again, or forget them; Refused while the group has members. A group that is made for
        this is charged to `address`.
        """
        groups = self._state.groups
        for first in range(0, max(len(starts), 1), _STARTS_AT_ONCE):
            some = self._in_the_log(starts[first : first + _STARTS_AT_ONCE])
            if groups.named(name) is None and may_create:
                groups.check_addable(name)
            elif not self.existing(name).is_empty:
                raise Refused(NON_EMPTY_GROUP, f"group '{name}' has members")
            self._check_space(some)
            with self._members.founding(name, address):
                self._runtime.commit(ShareStartsSet(name, some))
            yield APPEND_PIECES + len(some)

    def _in_the_log(self, starts: Iterable[ShareStart]) -> tuple[ShareStart, ...]:
        """Those whose topics have not been deleted meanwhile."""
        return tuple([start for start in starts if self._state.catalog.numbered(start.number) is not None])

    def _check_space(self, starts: Sequence[ShareStart]) -> None:
        count = self._state.groups.shares.partitions
        more = sum(start.offset >= 0 for start in starts)
        if more and count + more > self._runtime.limits.share_partitions_max:
            raise Refused(
                POLICY_VIOLATION, f"there are {count} share partitions, no more are allowed (share_partitions_max)"
            )

    def acquire(
        self, session: ShareSession, readings: Iterable[Reading], wish: Wish
    ) -> Steps[dict[PartitionName, list[ShareBatch]]]:
        """What a member acquires of these records, partition by partition."""
        rules = self.share_rules_of(session.name.group)
        left = min(wish.records_max, self._records_left() or wish.records_max)
        of_partition = {reading.name: reading for reading in readings}
        acquired: dict[PartitionName, list[ShareBatch]] = {}

        def decide(name: PartitionName, partition: SharePartition | None) -> Outcome:
            nonlocal left
            if partition is None or left <= 0 or session.is_over:
                return _NO_CHANGE
            reading = of_partition[name]
            wish_now = wish._replace(records_max=left)
            outcome = partition.decide_acquire(reading.spans, reading.begin, reading.log_start, wish_now, rules)
            left -= _count_of(outcome.held)
            if outcome.held:
                self._note("acquired", session.name, name, outcome.held)
                acquired[name] = outcome.held
            return outcome

        yield from self._change(session.name.group, of_partition, decide, session)
        return acquired

    def acknowledge(
        self, session: ShareSession, acks: Mapping[PartitionName, Sequence[Ack]]
    ) -> Steps[dict[PartitionName, Refused]]:
        """Do what a member says about records that it holds; return the refusals. Each partition counts by itself."""
        rules = self.share_rules_of(session.name.group)
        refused: dict[PartitionName, Refused] = {}

        def decide(name: PartitionName, partition: SharePartition | None) -> Outcome:
            try:
                if partition is None:
                    raise Refused(INVALID_RECORD_STATE, "no record of this partition was delivered to anybody")
                outcome = partition.decide_acknowledge(session, acks[name], rules)
            except Refused as refusal:
                refused[name] = refusal.with_traceback(None)
                return _NO_CHANGE
            for word, batches in outcome.said.items():
                if word == RELEASE:
                    self._let_go("released", session.name, name, batches)
                elif word in _SAID:
                    self._note(_SAID[word], session.name, name, batches)
            return outcome

        yield from self._change(session.name.group, acks, decide, session)
        return refused

    def begin_session(
        self, who: SharerName, owner: Principal, connection_number: int, address: str
    ) -> Steps[ShareSession]:
        """Begin a session in place of the member's former one, which gives up what it holds."""
        self.sessions.check_owner(who, owner)
        while (former := self.sessions.of(who)) is not None:
            yield from self.end_session(former)
        return self.sessions.begin(who, owner, connection_number, address)

    def end_session(self, session: ShareSession) -> Steps[None]:
        """End a member's session, and release what it holds."""
        if not session.is_over:
            self.sessions.end(session)
            yield from self._release(session.name.group, {session})

    def _release(self, group: str, sessions: Collection[ShareSession]) -> Steps[None]:
        """These sessions have ended."""

        # The only one, usually.
        who = next(iter(sessions)).name if len(sessions) == 1 else SharerName(group, "")

        def decide(name: PartitionName, partition: SharePartition | None) -> Outcome:
            if partition is None:
                return _NO_CHANGE
            batches = partition.decide_release(lambda state: state.holder in sessions, self.share_rules_of(group))
            self._let_go("released", who, name, batches)
            return Outcome(batches, [])

        yield from self._change(group, list(self._locked.get(group, ())), decide)

    def stop(self) -> None:
        """The broker stops: what its members hold is released at the next start."""
        self._stops = True

    def end_sessions_of(self, connection_number: int) -> None:
        """This connection is lost."""
        if self._stops:
            return
        of_groups: dict[str, set[ShareSession]] = {}
        for session in self.sessions.of_connection(connection_number):
            self.sessions.end(session)
            of_groups.setdefault(session.name.group, set()).add(session)
        for group, sessions in of_groups.items():
            self._runtime.turns.begin(self._release(group, sessions), self._runtime.note_end)

    def _pass_lock_time(self, name: str, now_ms: int) -> Steps[None]:
        """Release the records of a group whose locks have timed out."""
        locked = self._locked.get(name, {})

        def decide(place: PartitionName, partition: SharePartition | None) -> Outcome:
            if partition is None:
                locked.pop(place, None)
                return _NO_CHANGE
            batches = partition.decide_overdue(now_ms, self.share_rules_of(name))
            self._let_go("timed_out", SharerName(name, ""), place, batches)
            if partition.next_deadline_ms() is None:
                locked.pop(place, None)
            self._note_lock(name, place, partition)
            return Outcome(batches, [])

        yield from self._change(name, list(locked), decide)
        if not locked:
            self._locked.pop(name, None)

    def _let_go(self, event: str, who: SharerName, name: PartitionName, batches: list[ShareBatch]) -> None:
        """Nobody holds these runs any more."""
        self._note(event, who, name, [batch for batch in batches if batch.kind == AVAILABLE])
        self._note("archived", who, name, [batch for batch in batches if batch.kind != AVAILABLE])

    def _note(self, event: str, who: SharerName, name: PartitionName, batches: Sequence[ShareBatch]) -> None:
        """Count what happened to these records, and tell the subscribers. Without a member's id it was the broker."""
        if not batches:
            return
        self._runtime.metrics.shared_records[event] += _count_of(batches)
        topic = self._state.catalog.numbered(name.number) if self._decisions.is_watched else None
        if topic is not None:
            now_ms = self._runtime.clock.now_ms()
            for first, last, _, deliveries in batches[:SHARED_TOLD_MAX]:
                told = SharedDecision(now_ms, event, *who, topic.name, name.partition, first, last, deliveries)
                self._decisions.tell_shared(told)

    def _change(
        self,
        group: str,
        names: Iterable[PartitionName],
        decide: Callable[[PartitionName, SharePartition | None], Outcome],
        holder: ShareSession | None = None,
    ) -> Steps[None]:
        """Commit what is decided about these share partitions, one entry for those that are decided in one turn."""
        some: dict[PartitionName, Outcome] = {}
        runs = 0
        for name in names:
            machine = self._existing(group)
            partition = None if machine is None else machine.partition(name)
            some[name] = outcome = decide(name, partition)
            runs += _RUNS_PER_PIECE + len(outcome.changes) + (0 if partition is None else partition.run_count)
            if runs >= _RUNS_AT_ONCE:
                self._commit_states(group, some, holder)
                yield APPEND_PIECES + runs // _RUNS_PER_PIECE
                some, runs = {}, 0
        self._commit_states(group, some, holder)
        yield 1 + runs // _RUNS_PER_PIECE

    def _commit_states(
        self, group: str, outcomes: Mapping[PartitionName, Outcome], holder: ShareSession | None
    ) -> None:
        changes = [ShareChange(*name, tuple(outcome.changes)) for name, outcome in outcomes.items() if outcome.changes]
        if changes:
            self._runtime.commit(ShareStatesChanged(group, tuple(changes)))
        for number, index, _ in changes:
            of_log = self._state.partitions.at(number, index)
            if of_log is not None and of_log.watchers:
                # Records are available again, or there is space for more.
                self._runtime.log.note_moved(of_log)
        until_ms = self._runtime.clock.steady_ms() + self.share_rules_of(group).lock_ms
        for name, outcome in outcomes.items():
            if outcome.held:
                partition = self.existing(group).partition(name)
                assert partition is not None
                partition.hold(outcome.held, holder, until_ms)
                self._note_lock(group, name, partition)

    def _note_lock(self, group: str, name: PartitionName, partition: SharePartition) -> None:
        deadline_ms = partition.next_deadline_ms()
        if deadline_ms is not None:
            self._locked.setdefault(group, {})[name] = None
            self._locks.note(group, deadline_ms)


_NO_CHANGE: Final = Outcome([], [])
# What a member says about records, without releases and gaps.
_SAID: Final = {ACCEPT: "accepted", REJECT: "rejected", RENEW: "renewed"}


def _count_of(batches: Iterable[ShareBatch]) -> int:
    """The records in these runs."""
    return sum(batch.last - batch.first + 1 for batch in batches)
