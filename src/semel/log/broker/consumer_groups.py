"""Runs the consumer groups of the new protocol: their configurations, and their members of the classic protocol.

The rules are in `semel.log.core.groups.consumer`, and what all groups have that the broker assigns in
`semel.log.broker.assigned_groups`.

Members of the classic protocol come from `semel.log.broker.classic_groups`, which has the groups without a member of
the new protocol.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeGuard

from semel.log.broker.assigned_groups import AssignedGroupCoordinator
from semel.log.broker.limits import group_rules
from semel.log.broker.members import Members
from semel.log.broker.runtime import Runtime
from semel.log.core.configs import Definition, canonical
from semel.log.core.entries import MembersChanged
from semel.log.core.groups import consumer_migration, group_configs
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.classic_steps import JoinAnswer, JoinRequest, Leaver, SyncAnswer, SyncRequest
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import JOIN_EPOCH
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.consumer_topics import Sight
from semel.log.core.groups.share import ShareGroup
from semel.wire.refusals import (
    GROUP_ID_NOT_FOUND,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    Refused,
)


class ClassicSide(Protocol):
    """The coordinator of classic groups, for a group that changes from one protocol to the other."""

    def hand_over(self, machine: ClassicGroup) -> None:
        """The group has changed to the new protocol."""

    def take_over(self, name: str) -> None:
        """The group has changed to the classic protocol."""


class ConsumerGroupCoordinator(AssignedGroupCoordinator[ConsumerGroup]):
    """The groups of the new protocol of one broker."""

    classic: ClassicSide

    def __init__(self, runtime: Runtime, members: Members, sight: Sight) -> None:
        """`members` are those of all groups."""
        super().__init__(runtime, members, sight)
        self._rules = group_rules(runtime.limits)

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """The configurations that may be set on a group."""
        return group_configs.definitions(self._rules)

    def rules_of(self, name: str) -> MemberRules:
        """The rules for a group: its configurations, and the broker's settings for those that are not set."""
        return group_configs.consumers_with(self._rules, self._state.groups.configs_of(name))

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

    # -- what differs from other groups that the broker assigns -------------------------------------------------

    def is_ours(self, machine: object) -> TypeGuard[ConsumerGroup]:
        return isinstance(machine, ConsumerGroup)

    def _new(self) -> ConsumerGroup:
        return ConsumerGroup()

    def _append(self, entry: MembersChanged) -> None:
        group = self._state.groups.named(entry.group)
        machine_before = None if group is None else group.machine
        super()._append(entry)
        if isinstance(machine_before, ClassicGroup):
            self.classic.hand_over(machine_before)

    def _machine(self, name: str, beat: Heartbeat) -> tuple[ConsumerGroup, MembersChanged | None]:
        """The group's machine, and the entry to commit first if the group still has the classic protocol."""
        groups = self._state.groups
        group = groups.named(name)
        machine = None if group is None else group.machine
        if isinstance(machine, ConsumerGroup):
            return self._seeing(machine), None
        if beat.epoch != JOIN_EPOCH:
            raise Refused(GROUP_ID_NOT_FOUND, f"there is no consumer group '{name}'")
        if isinstance(machine, ShareGroup):
            raise Refused(GROUP_ID_NOT_FOUND, f"'{name}' is a share group")
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
        self._note_left(name, machine)
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
            self._note_left(name, machine)
        return results

    # -- from one protocol to the other -------------------------------------------------------------------------

    def _begin_with(self, name: str, entry: MembersChanged) -> None:
        machine = self._keep(name, ConsumerGroup(), entry)
        machine.hear_all(self.rules_of(name), self._runtime.clock.steady_ms())
        self._note_deadline(name, machine)

    def _note_left(self, name: str, machine: ConsumerGroup) -> None:
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
