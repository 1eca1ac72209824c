"""Runs the share groups: their members, and what these acquire and acknowledge.

The rules are in `semel.log.core.groups.share` and `share_partition`. All that one request changes in share partitions
is one entry, and its answer waits until that is durable, so no record is delivered whose delivery is not counted. The
holders of records are in memory only: the locks have an alarm, a lost connection releases what its members hold, and at
a start every lock has timed out. This file must never read a record.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeGuard

from semel.log.broker.assigned_groups import AssignedGroupCoordinator
from semel.log.broker.limits import group_rules
from semel.log.broker.members import Members
from semel.log.broker.runtime import Runtime
from semel.log.broker.share_sessions import Place, SharerName, ShareSession, ShareSessions
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
    Acknowledgement,
    LogSpan,
    SharePartition,
    ShareRules,
    Wish,
)
from semel.wire.refusals import GROUP_ID_NOT_FOUND, INVALID_RECORD_STATE, NON_EMPTY_GROUP, POLICY_VIOLATION, Refused
from semel.wire.steps import APPEND_PIECES, Steps

# Share partitions that begin in one entry: some milliseconds.
_STARTS_AT_ONCE: Final = 200


class Reading(NamedTuple):
    """What the log has in a partition from offset `begin` on."""

    name: PartitionName
    begin: int
    log_start: int
    spans: Sequence[LogSpan]


class ShareGroupCoordinator(AssignedGroupCoordinator[ShareGroup]):
    """The share groups of one broker."""

    def __init__(self, runtime: Runtime, members: Members, sight: Sight) -> None:
        super().__init__(runtime, members, sight)
        limits = runtime.limits
        self._group_rules = group_rules(limits)
        self.sessions = ShareSessions(limits.share_sessions_max, limits.share_session_partitions_max)
        self._stops = False
        # The share partitions of each group in which a lock may time out, and those in which each member may hold some.
        self._locked: dict[str, dict[PartitionName, None]] = {}
        self._held: dict[SharerName, dict[PartitionName, None]] = {}
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
        return group_configs.shares_with(self._group_rules, self._state.groups.configs_of(name))

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
            new = tuple([ShareStart(*place, offset) for place, offset in some if machine.partition(place) is None])
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
            some = tuple(starts[first : first + _STARTS_AT_ONCE])
            if groups.named(name) is None and may_create:
                groups.check_addable(name)
            elif not self.existing(name).is_empty:
                raise Refused(NON_EMPTY_GROUP, f"group '{name}' has members")
            self._check_space(some)
            with self._members.founding(name, address):
                self._runtime.commit(ShareStartsSet(name, some))
            yield APPEND_PIECES + len(some)

    def _check_space(self, starts: Sequence[ShareStart]) -> None:
        count = self._state.groups.shares.partitions
        if count + len(starts) > self._runtime.limits.share_partitions_max:
            raise Refused(POLICY_VIOLATION, f"there are {count} share partitions, no more are allowed")

    def acquire(
        self, who: SharerName, readings: Iterable[Reading], wish: Wish
    ) -> dict[PartitionName, list[ShareBatch]]:
        """What a member acquires of these records, partition by partition."""
        machine, rules = self.existing(who.group), self.share_rules_of(who.group)
        left = min(wish.records_max, self._runtime.limits.share_records_max - self._state.groups.shares.records)
        changes, acquired = [], {}
        for reading in readings:
            partition = machine.partition(reading.name)
            if partition is None or left <= 0:
                continue
            some = partition.decide_acquire(
                reading.spans, reading.begin, reading.log_start, wish._replace(records_max=left), rules
            )
            count = sum(batch.last - batch.first + 1 for batch in some.acquired)
            self._runtime.metrics.shared_records["acquired"] += count
            left -= count
            if some.changes:
                changes.append(ShareChange(*reading.name, tuple(some.changes)))
            if some.acquired:
                acquired[reading.name] = some.acquired
        self._commit_states(who.group, changes)
        for name, batches in acquired.items():
            self._hold(who, name, batches, rules)
        return acquired

    def acknowledge(self, who: SharerName, acks: Mapping[PartitionName, Sequence[Ack]]) -> dict[PartitionName, Refused]:
        """Do what a member says about records that it holds; return the refusals. Each partition counts by itself."""
        machine, rules = self.existing(who.group), self.share_rules_of(who.group)
        changes, renewed, refused = [], {}, {}
        for name, of_partition in acks.items():
            partition = machine.partition(name)
            try:
                if partition is None:
                    raise Refused(INVALID_RECORD_STATE, "no record of this partition was delivered to anybody")
                done = partition.decide_acknowledge(who.member_id, of_partition, rules)
            except Refused as refusal:
                refused[name] = refusal.with_traceback(None)
                continue
            self._count(of_partition, done)
            if done.changes:
                changes.append(ShareChange(*name, tuple(done.changes)))
            if done.renewed:
                renewed[name] = done.renewed
        self._commit_states(who.group, changes)
        for name, batches in renewed.items():
            self._hold(who, name, batches, rules)
        return refused

    def begin_session(
        self, who: SharerName, owner: Principal, connection_number: int, places: Iterable[Place]
    ) -> ShareSession:
        """Begin a session in place of the member's former one, which gives up what it holds."""
        self.sessions.check_owner(who, owner)
        self.end_session(who)
        return self.sessions.begin(who, owner, connection_number, places)

    def end_session(self, who: SharerName) -> None:
        """The member's session has ended: release what it holds."""
        self.sessions.end(who)
        machine, names = self._existing(who.group), self._held.pop(who, None)
        if machine is not None and names:
            rules, changes = self.share_rules_of(who.group), []
            for name in names:
                partition = machine.partition(name)
                if partition is not None:
                    batches = partition.decide_release(lambda state: state.holder == who.member_id, rules)
                    self._count_released("released", batches)
                    changes += [ShareChange(*name, tuple(batches))] if batches else []
            self._commit_states(who.group, changes)

    def stop(self) -> None:
        """The broker stops: what its members hold is released at the next start."""
        self._stops = True

    def end_sessions_of(self, connection_number: int) -> None:
        """This connection is lost."""
        if self._stops:
            return
        for who in self.sessions.of_connection(connection_number):
            self._runtime.attempt(partial(self.end_session, who))

    def _pass_lock_time(self, name: str, now_ms: int) -> Steps[None]:
        """Release the records of a group whose locks have timed out."""
        locked = self._locked.get(name, {})
        for place in list(locked):
            machine = self._existing(name)
            partition = None if machine is None else machine.partition(place)
            if machine is not None and partition is not None:
                batches = partition.decide_overdue(now_ms, self.share_rules_of(name))
                self._count_released("timed_out", batches)
                self._commit_states(name, [ShareChange(*place, tuple(batches))] if batches else [])
            locked.pop(place, None)
            if partition is not None:
                self._note_lock(name, place, partition)
            yield 1 + (0 if partition is None else partition.run_count // 20)
        if not locked:
            self._locked.pop(name, None)

    def _count(self, acks: Iterable[Ack], done: Acknowledgement) -> None:
        """Count what a member has said about records."""
        words = Counter[int]()
        for ack in acks:
            words.update({ack.words[0]: ack.last - ack.first + 1} if len(ack.words) == 1 else Counter(ack.words))
        counts = self._runtime.metrics.shared_records
        counts["accepted"] += words[ACCEPT]
        counts["rejected"] += words[REJECT]
        counts["renewed"] += words[RENEW]
        again = sum(batch.last - batch.first + 1 for batch in done.changes if batch.kind == AVAILABLE)
        counts["released"] += again
        counts["given_up"] += max(words[RELEASE] - again, 0)

    def _count_released(self, event: str, batches: Iterable[ShareBatch]) -> None:
        counts = self._runtime.metrics.shared_records
        for batch in batches:
            counts[event if batch.kind == AVAILABLE else "given_up"] += batch.last - batch.first + 1

    def _commit_states(self, name: str, changes: Sequence[ShareChange]) -> None:
        if not changes:
            return
        self._runtime.commit(ShareStatesChanged(name, tuple(changes)))
        for number, index, _ in changes:
            of_log = self._state.partitions.at(number, index)
            if of_log is not None and of_log.watchers:
                # Records are available again, or there is space for more.
                self._runtime.log.note_moved(of_log)

    def _hold(self, who: SharerName, name: PartitionName, batches: Iterable[ShareBatch], rules: ShareRules) -> None:
        partition = self.existing(who.group).partition(name)
        if partition is not None:
            partition.hold(batches, who.member_id, self._runtime.clock.steady_ms() + rules.lock_ms)
            self._held.setdefault(who, {})[name] = None
            self._note_lock(who.group, name, partition)

    def _note_lock(self, group: str, name: PartitionName, partition: SharePartition) -> None:
        deadline_ms = partition.next_deadline_ms()
        if deadline_ms is not None:
            self._locked.setdefault(group, {})[name] = None
            self._locks.note(group, deadline_ms)
