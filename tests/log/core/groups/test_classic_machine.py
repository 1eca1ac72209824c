"""The classic group protocol under members that come, go, die, come back, lose answers, and a broker that restarts.

The members are naive: each does what a client does, and knows only what it was answered. Whatever happens: no partition
has two owners in one generation, generations are never used twice, who is late is refused, every request is answered
once, and as soon as things are calm the members that are alive share all partitions.
"""

import json
from dataclasses import dataclass, field

import pytest
from classic_driver import REBALANCE_MS, SESSION_MS, Driver
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from semel.log.core.entries import ClassicGroupChanged
from semel.log.core.groups import classic
from semel.log.core.groups.classic_group import State
from semel.log.core.groups.classic_steps import JoinAnswer, Leaver, SyncAnswer
from semel.log.core.groups.offsets import Committer
from semel.log.storage.encoding import decode
from semel.wire import refusals
from semel.wire.refusals import Refused

PARTITIONS = range(6)
HEARTBEAT_MS = 3_000
TOO_LATE = {refusals.ILLEGAL_GENERATION, refusals.UNKNOWN_MEMBER_ID, refusals.FENCED_INSTANCE_ID}


@dataclass
class Client:
    """A consumer: it joins, syncs and sends heartbeats, as it is told."""

    name: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    # What it waits for.
    request: int | None = None
    is_member: bool = False
    is_alive: bool = True
    heard_at_ms: int = 0
    ids: set[str] = field(default_factory=set)

    @property
    def owner(self) -> str:
        return self.instance_id or self.member_id


clients = st.integers(0, 4)


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.clients: list[Client] = []
        # Who was given each partition, generation by generation.
        self.given: dict[int, dict[int, str]] = {}
        # Requests that nobody waits for any more: the connection was lost, or the broker died.
        self.lost: set[int] = set()
        self.asked: set[int] = set()

    # -- what clients do ------------------------------------------------------------------------------------------

    def join(self, client: Client) -> None:
        client.is_member = False
        client.request = self.driver.ask_to_join(
            client.member_id, client.instance_id, new_id=f"{client.name}-{len(client.ids)}", version=client.version
        )
        client.ids.add(f"{client.name}-{len(client.ids)}")
        self.asked.add(client.request)

    def sync(self, client: Client, assignments: dict[str, bytes]) -> None:
        client.request = self.driver.ask_to_sync(client.member_id, client.generation, assignments, client.instance_id)
        self.asked.add(client.request)

    def take_answer(self, client: Client) -> None:
        """Go on with what was answered, if anything was."""
        answer = self.driver.answers.get(client.request or 0)
        if answer is None:
            return
        client.request = None
        client.heard_at_ms = self.driver.now_ms
        if isinstance(answer, JoinAnswer):
            self.take_join(client, answer)
        else:
            self.take_sync(client, answer)

    def take_join(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error == refusals.FENCED_INSTANCE_ID:
            client.is_alive = False
        elif answer.error:
            client.member_id = answer.member_id if answer.error == refusals.MEMBER_ID_REQUIRED else ""
            self.join(client)
        else:
            client.member_id, client.generation = answer.member_id, answer.generation
            shares: dict[str, list[int]] = {member.member_id: [] for member in answer.members}
            if shares and not answer.skip_assignment:
                for partition in PARTITIONS:
                    list(shares.values())[partition % len(shares)].append(partition)
            else:
                shares = {}
            told = {one: json.dumps([answer.generation, mine]).encode() for one, mine in shares.items()}
            self.sync(client, told)

    def take_sync(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error:
            if answer.error == refusals.FENCED_INSTANCE_ID:
                client.is_alive = False
                return
            if answer.error == refusals.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            self.join(client)
            return
        client.is_member = True
        generation, partitions = json.loads(answer.assignment or f"[{client.generation}, []]")
        assert generation == client.generation, "an assignment of another generation"
        owners = self.given.setdefault(generation, {})
        for partition in partitions:
            assert owners.setdefault(partition, client.owner) == client.owner, "two owners in one generation"

    def beat(self, client: Client) -> None:
        if not client.is_member:
            return
        error = self.driver.heartbeat(client.member_id, client.generation, client.instance_id)
        client.heard_at_ms = self.driver.now_ms
        if error == refusals.FENCED_INSTANCE_ID:
            client.is_alive = False
        elif error:
            if error == refusals.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            self.join(client)

    def alive(self, index: int) -> Client | None:
        client = self.clients[index % len(self.clients)] if self.clients else None
        return client if client is not None and client.is_alive else None

    # -- what happens -----------------------------------------------------------------------------------------------

    @precondition(lambda self: sum(client.is_alive for client in self.clients) < 5)
    @rule(instance=st.sampled_from([None, None, "x", "y"]), version=st.sampled_from([3, 8, 9]))
    def start_client(self, instance: str | None, version: int) -> None:
        client = Client(f"c{len(self.clients)}", instance, version)
        self.clients.append(client)
        self.join(client)

    @rule(index=clients)
    def go_on(self, index: int) -> None:
        client = self.alive(index)
        if client is not None:
            self.take_answer(client)
            self.beat(client)

    @rule(rounds=st.integers(1, 6))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in [one for one in self.clients if one.is_alive]:
                self.take_answer(client)
                self.beat(client)
            self.driver.pass_time()

    @rule(index=clients)
    def join_again(self, index: int) -> None:
        """It changed its mind, or a timer of its own ran out."""
        client = self.alive(index)
        if client is not None and client.is_member:
            self.join(client)

    @rule(index=clients, is_lost=st.booleans())
    def ask_again(self, index: int, is_lost: bool) -> None:
        """The client repeats itself, perhaps because it has lost the connection over which the answer would come."""
        client = self.alive(index)
        if client is not None and client.request is not None:
            if is_lost:
                self.lose(client)
            self.join(client)

    @rule(index=clients, is_noticed=st.booleans())
    def die(self, index: int, is_noticed: bool) -> None:
        client = self.alive(index)
        if client is not None:
            client.is_alive = False
            if is_noticed:
                self.lose(client)

    @rule(index=clients)
    def lose_connection(self, index: int) -> None:
        client = self.alive(index)
        if client is not None and client.request is None:
            self.lose(client)

    def lose(self, client: Client) -> None:
        if client.request is not None:
            if client.request not in self.driver.answers:
                classic.forget(self.driver.group, client.request, self.driver.now_ms)
                self.lost.add(client.request)
            client.request = None
        classic.connection_lost(self.driver.group, client.member_id, self.driver.now_ms, self.driver.rules)

    @rule(index=clients)
    def leave(self, index: int) -> None:
        client = self.alive(index)
        if client is not None and client.member_id:
            self.driver.leave(Leaver(client.member_id, client.instance_id))
            client.is_alive = False

    @rule(duration_ms=st.sampled_from([0, 1, HEARTBEAT_MS, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, duration_ms: int) -> None:
        self.driver.pass_time(duration_ms)

    @rule(refuses=st.booleans())
    def turn_disk(self, refuses: bool) -> None:
        self.driver.disk_refuses = refuses

    @rule(from_checkpoint=st.booleans())
    def restart(self, from_checkpoint: bool) -> None:
        waiting = self.asked - self.driver.answers.keys()
        self.lost |= waiting
        self.driver.restart(from_checkpoint=from_checkpoint)
        for client in self.clients:
            if client.request in waiting:
                client.request = None
                if client.is_alive:
                    self.join(client)

    @rule(index=clients, age=st.integers(1, 3))
    def come_late(self, index: int, age: int) -> None:
        """A zombie speaks: somebody who was a member in an earlier generation, dead or not."""
        if not self.clients:
            return
        client = self.clients[index % len(self.clients)]
        generation = self.driver.group.generation - age  # a generation that was never stored goes with the process
        if not client.member_id or generation < 0:
            return
        assert self.driver.heartbeat(client.member_id, generation, client.instance_id) in TOO_LATE
        request = self.driver.ask_to_sync(client.member_id, generation, {}, client.instance_id)
        assert self.driver.synced(request).error in TOO_LATE
        with pytest.raises(Refused) as refused:
            self.driver.group.check_commit(
                Committer(client.member_id, client.instance_id, generation, is_transactional=True, version=9)
            )
        assert refused.value.error in TOO_LATE

    # -- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def stored_generations_only_grow(self) -> None:
        entries = [decode(kind, memoryview(payload)) for kind, payload in self.driver.entries]
        generations = [entry.generation for entry in entries if isinstance(entry, ClassicGroupChanged)]
        assert generations == sorted(generations)

    @invariant()
    def what_is_promised_for_later_has_a_time(self) -> None:
        group = self.driver.group
        if group.state not in (State.EMPTY, State.DEAD):
            assert classic.next_deadline_ms(group) is not None

    @invariant()
    def sizes_are_those_of_the_members(self) -> None:
        members = self.driver.group.members
        assert members.size_bytes == sum(member.size_bytes for member in members)

    def teardown(self) -> None:
        self.driver.disk_refuses = False
        self.calm_down()
        self.driver.carry_out(classic.close(self.driver.group, self.driver.now_ms))
        assert self.asked - self.lost <= self.driver.answers.keys(), "a request without an answer"
        assert not self.lost & self.driver.answers.keys(), "an answer to nobody"

    def calm_down(self) -> None:
        """Nothing more happens but what clients do by themselves: soon they share all there is."""
        for _ in range(4 * (REBALANCE_MS + SESSION_MS) // HEARTBEAT_MS):
            self.all_go_on(1)
            self.driver.pass_time(HEARTBEAT_MS)
        alive = [client for client in self.clients if client.is_alive]
        group = self.driver.group
        assert group.state is (State.STABLE if alive else State.EMPTY)
        assert {member.member_id for member in group.members} == {client.member_id for client in alive}
        if alive:
            assert all(client.is_member and client.generation == group.generation for client in alive)
            shared = self.given[group.generation]
            assert set(shared) == set(PARTITIONS)
            assert set(shared.values()) <= {client.owner for client in alive}


TestClassicGroupMachine = ClassicGroupMachine.TestCase
TestClassicGroupMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
