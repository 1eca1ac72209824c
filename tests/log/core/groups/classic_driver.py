"""Drives a classic group as the broker does: commits what it proposes, or refuses to, and keeps the answers."""

import json
from base64 import b64encode
from typing import Any

from semel.log.core.entries import ClassicGroupChanged
from semel.log.core.groups import classic
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
from semel.log.storage.encoding import decode, encode
from semel.wire.refusals import NONE, Refused

SESSION_MS = 10_000
REBALANCE_MS = 30_000

RULES = ClassicRules(
    members_max=10,
    group_bytes_max=1024 * 1024,
    session_timeout_min_ms=6_000,
    session_timeout_max_ms=1_800_000,
    initial_rebalance_delay_ms=0,
    new_member_join_timeout_ms=300_000,
    lost_connection_session_percent=40,
)

RANGE = {"range": b"r"}


def written_and_read(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A snapshot as a checkpoint keeps it, with bytes in base64."""
    kept: dict[str, Any] = json.loads(json.dumps(snapshot, default=lambda own_bytes: b64encode(own_bytes).decode()))
    return kept


class Driver:
    """A group and its clock. Requests are numbers; `answers` has what became of each."""

    def __init__(self, rules: ClassicRules = RULES) -> None:
        self.rules = rules
        self.group = ClassicGroup("g")
        self.now_ms = 1_000
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.entries: list[tuple[int, bytes]] = []
        self.disk_refuses = False
        self._requests = 0

    def ask_to_join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        new_id: str = "",
        protocols: dict[str, bytes] | None = None,
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
    ) -> int:
        self._requests += 1
        request = JoinRequest(
            member_id=member_id,
            new_member_id=new_id or f"m{self._requests}",
            instance_id=instance_id,
            client_id="client",
            client_host="/host",
            protocol_type=protocol_type,
            protocols=RANGE if protocols is None else protocols,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            requires_known_id=version >= 4,
            may_skip_assignment=version >= 9,
        )
        self.carry_out(classic.join(self.group, request, self._requests, self.now_ms, self.rules))
        return self._requests

    def ask_to_sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        self._requests += 1
        request = SyncRequest(member_id, instance_id, generation, protocol_type, protocol, assignments or {})
        self.carry_out(classic.sync(self.group, request, self._requests, self.now_ms))
        return self._requests

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        try:
            classic.heartbeat(self.group, member_id, instance_id, generation, self.now_ms)
        except Refused as refused:
            return refused.error
        return NONE

    def leave(self, *leavers: Leaver) -> list[int]:
        step = classic.leave(self.group, leavers, self.now_ms)
        self.carry_out(step)
        return step.left

    def pass_time(self, duration_ms: int = 0) -> None:
        """Let time pass, and have done at its time whatever is due."""
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := classic.next_deadline_ms(self.group)) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.carry_out(classic.pass_time(self.group, self.now_ms))
        self.now_ms = until_ms

    def carry_out(self, step: Step) -> None:
        if step.proposal is not None:
            if self.disk_refuses:
                step.proposal.refused()
            else:
                kind, parts = encode(step.proposal.entry)
                self.entries.append((kind, b"".join(parts)))
                self.group.check(step.proposal.entry)
                self.group.apply(step.proposal.entry)
                step.proposal.kept()
        for waiter, answer in step.answers:
            assert isinstance(waiter, int)
            assert waiter not in self.answers, "answered twice"
            self.answers[waiter] = answer

    def restart(self, *, from_checkpoint: bool = False) -> None:
        """Begin anew with what was stored: in a checkpoint, or entry by entry."""
        ended, self.group = self.group, ClassicGroup("g")
        if from_checkpoint and ended.is_stored:
            self.group.restore(written_and_read(ended.snapshot()))
        else:
            for kind, payload in self.entries:
                entry = decode(kind, memoryview(payload))
                assert isinstance(entry, ClassicGroupChanged)
                self.group.apply(entry)
        self.group.begin(self.now_ms)

    # -- whole conversations ------------------------------------------------------------------------------------

    def joined(self, request: int) -> JoinAnswer:
        answer = self.answers[request]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, request: int) -> SyncAnswer:
        answer = self.answers[request]
        assert isinstance(answer, SyncAnswer)
        return answer

    def new_id(self, **options: object) -> str:
        """The id that a new member is told."""
        return self.joined(self.ask_to_join(**options)).member_id  # type: ignore[arg-type]

    def stable(self, *names: str, protocols: dict[str, bytes] | None = None) -> int:
        """Members of these ids form a generation, and each is given its own name; the generation."""
        ids = [self.new_id(new_id=name, protocols=protocols) for name in names]
        requests = [self.ask_to_join(member_id, protocols=protocols) for member_id in ids]
        self.pass_time()
        return self.sync_all(requests)

    def sync_all(self, requests: list[int]) -> int:
        """The members whose joins were answered sync, the leader too; the generation."""
        joined = [self.joined(request) for request in requests]
        for answer in joined:
            assert answer.error == NONE
            assignments = {member.member_id: member.member_id.encode() for member in answer.members}
            self.ask_to_sync(answer.member_id, answer.generation, assignments)
        return joined[0].generation

    def stable_static(self, *instances: str) -> int:
        """Static members form a generation, each with an id of its name and "-1"; the generation."""
        requests = [self.ask_to_join(instance_id=name, new_id=f"{name}-1") for name in instances]
        self.pass_time()
        first = self.sync_all(requests[:1])
        if len(requests) > 1:
            return self.sync_all([self.ask_to_join(f"{name}-1", name) for name in instances])
        return first
