"""Drives the groups of the new protocol: what heartbeats change becomes durable, and members that fall silent are gone.

The rules are those of `semel.core.groups.consumer`. Here is what they must not know: the journal that keeps what they
decide, the alarm, and how far the journal has to be durable before a member may hear where it is. A heartbeat that
changes nothing writes nothing; its answer still waits for what was changed last in its group, since it shows that.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from semel.core.entries import PartitionName
from semel.core.groups import consumer_requests
from semel.core.groups.consumer import ConsumerGroup, ConsumerRules
from semel.core.groups.consumer_requests import JOIN_EPOCH, Heartbeat
from semel.core.refusals import COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND, INVALID_REQUEST, Refused

if TYPE_CHECKING:
    from semel.broker.broker import Broker


class Heard(NamedTuple):
    """The answer to a heartbeat: where the member is, what it may read if it must be told, and when it may be told."""

    member_id: str
    epoch: int
    may_read: tuple[PartitionName, ...] | None
    after: int


class ConsumerGroupCoordinator:
    """The groups of the new protocol that one broker has."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.rules = ConsumerRules(
            session_timeout_ms=broker.limits.consumer_group_session_timeout_ms,
            heartbeat_interval_ms=broker.limits.consumer_group_heartbeat_interval_ms,
            members_max=broker.limits.group_members_max,
        )
        # Behind which position of the journal each group was changed last.
        self._changed: dict[str, int] = {}
        # When to look at each group; the heap has an item for each, and some that do not count any more.
        self._due_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def begin(self) -> None:
        """The log was recovered: members have their whole session to show that they are still there."""
        self._broker.alarm.watch(self.next_deadline_ms, self.pass_time)
        for group in self._broker.log.groups:
            if isinstance(group.machine, ConsumerGroup):
                group.machine.hear_all(self.rules, self._broker.now_ms())
                self._note_deadline(group.name, group.machine)

    def heartbeat(self, name: str, beat: Heartbeat) -> Heard:
        """Carry out what a heartbeat changes, or refuse it."""
        if not name:
            raise Refused(INVALID_REQUEST, "a group has a name")
        consumer_requests.check(beat)
        broker = self._broker
        now_ms = broker.now_ms()
        machine = self._machine(name, beat)
        known = machine.members.get(beat.member_id)
        could_read = None if known is None else known.held.keys()
        if beat.leaves:
            entry = machine.decide_leave(name, beat, broker.log.catalog, now_ms)
        else:
            entry = machine.decide_heartbeat(name, beat, broker.log.catalog, self.rules, now_ms)
        if entry is not None:
            try:
                broker.commit(entry)
            except OSError as refusal:
                raise Refused(COORDINATOR_NOT_AVAILABLE, "the disk would not take it") from refusal
            machine = broker.log.groups.consumer(name)
            self._changed[name] = broker.log.end
        after = self._changed.get(name, 0)
        if beat.leaves:
            return Heard(beat.member_id, beat.epoch, None, after)
        machine.hear(beat.member_id, self.rules, now_ms)
        self._note_deadline(name, machine)
        member = machine.members[beat.member_id]
        must_be_told = beat.says_all or member.held.keys() != could_read
        return Heard(beat.member_id, member.epoch, tuple(member.held) if must_be_told else None, after)

    def hear(self, name: str, member_id: str) -> None:
        """A member has shown in some other way that it is there."""
        group = self._broker.log.groups.named(name)
        if group is not None and isinstance(group.machine, ConsumerGroup):
            group.machine.hear(member_id, self.rules, self._broker.now_ms())

    def _machine(self, name: str, beat: Heartbeat) -> ConsumerGroup:
        """The group's machine; a new one, to be kept if something comes of it, where nobody else is in the group."""
        groups = self._broker.log.groups
        group = groups.named(name)
        if group is not None and isinstance(group.machine, ConsumerGroup):
            return group.machine
        if beat.epoch != JOIN_EPOCH or (group is not None and not group.is_empty):
            raise Refused(GROUP_ID_NOT_FOUND, f"there is no consumer group '{name}'")
        groups.check_room(name)
        return ConsumerGroup()

    # -- time ---------------------------------------------------------------------------------------------------

    def _note_deadline(self, name: str, machine: ConsumerGroup) -> None:
        deadline_ms = machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._due_ms.get(name, deadline_ms + 1):
            self._due_ms[name] = deadline_ms
            heappush(self._heap, (deadline_ms, name))
            self._broker.alarm.look()

    def next_deadline_ms(self) -> int | None:
        """When to look at the next group."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pass_time(self, now_ms: int) -> None:
        """Take those out of their groups who have been silent, or slow to let go, for too long."""
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            name = self._heap[0][1]
            group = self._broker.log.groups.named(name)
            machine = None if group is None else group.machine
            if isinstance(machine, ConsumerGroup):
                self._remove_overdue(name, machine, now_ms)
                del self._due_ms[name]
                self._note_deadline(name, machine)
            else:
                del self._due_ms[name]
                self._changed.pop(name, None)

    def _remove_overdue(self, name: str, machine: ConsumerGroup, now_ms: int) -> None:
        overdue = machine.overdue(now_ms)
        if overdue:
            self._broker.commit(machine.decide_removal(name, overdue, self._broker.log.catalog, now_ms))
            self._changed[name] = self._broker.log.end
