"""The classic group protocol against members that are confused or hostile: anything, in any order, in anybody's name.

Member ids of others and of nobody, several instance ids, generations that never were, assignments for strangers,
protocols that nobody shares; and a broker whose disk refuses, and that starts anew in between. Whatever is said: it is
refused by the protocol or leads to an entry that can be applied, each instance is one member, and every request is
answered once.
"""

from classic_driver import REBALANCE_MS, SESSION_MS, Driver
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from semel.log.core.entries import StoredMember
from semel.log.core.groups import classic
from semel.log.core.groups.classic_steps import Leaver
from semel.log.core.groups.offsets import Committer
from semel.wire.refusals import Refused

# None of them, what nobody was called, or one of the members that there are: the names of others are no secret.
member_ids = st.sampled_from(["", "", "nobody", 0, 1, 2])
instance_ids = st.sampled_from([None, None, "x", "y"])
# As an offset from the generation that there is, or far away.
generations = st.sampled_from([0, 0, 0, -1, 1, -100, 2**31 - 1])
protocols = st.dictionaries(st.sampled_from(["range", "sticky", "own"]), st.sampled_from([b"", b"r"]), max_size=2)


class ConfusedMembers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.asked: set[int] = set()
        # What was asked of a broker that has died since.
        self.lost: set[int] = set()
        self.told: list[str] = []

    def named(self, who: str | int) -> str:
        if isinstance(who, str):
            return who
        known = [member.member_id for member in self.driver.group.members] + self.told[-2:]
        return known[who % len(known)] if known else "nobody"

    def generation(self, off_by: int) -> int:
        return max(self.driver.group.generation + off_by, -100)

    @rule(
        member_id=member_ids,
        instance_id=instance_ids,
        protocols=st.one_of(st.none(), protocols),
        version=st.sampled_from([0, 3, 4, 9]),
        protocol_type=st.sampled_from(["consumer", "consumer", "connect", ""]),
    )
    def join(
        self,
        member_id: str | int,
        instance_id: str | None,
        protocols: dict[str, bytes] | None,
        version: int,
        protocol_type: str,
    ) -> None:
        request = self.driver.ask_to_join(
            self.named(member_id), instance_id, protocols=protocols, version=version, protocol_type=protocol_type
        )
        self.asked.add(request)
        if request in self.driver.answers and self.driver.joined(request).member_id:
            self.told.append(self.driver.joined(request).member_id)

    @rule(
        member_id=member_ids,
        instance_id=instance_ids,
        off_by=generations,
        gives_to=st.lists(member_ids, max_size=3),
        protocol=st.sampled_from([None, None, "range", "own"]),
    )
    def sync(
        self,
        member_id: str | int,
        instance_id: str | None,
        off_by: int,
        gives_to: list[str | int],
        protocol: str | None,
    ) -> None:
        assignments = {self.named(one): b"some" for one in gives_to}
        asked = self.named(member_id), self.generation(off_by), assignments, instance_id, None, protocol
        self.asked.add(self.driver.ask_to_sync(*asked))

    @rule(who=member_ids)
    def sync_as_one_should(self, who: str | int) -> None:
        member = self.driver.group.members.get(self.named(who))
        if member is not None:
            assignments = {one.member_id: b"share" for one in self.driver.group.members}
            generation = self.driver.group.generation
            self.asked.add(self.driver.ask_to_sync(member.member_id, generation, assignments, member.instance_id))

    @rule(member_id=member_ids, instance_id=instance_ids, off_by=generations)
    def send_heartbeat(self, member_id: str | int, instance_id: str | None, off_by: int) -> None:
        self.driver.heartbeat(self.named(member_id), self.generation(off_by), instance_id)

    @rule(member_id=member_ids, instance_id=instance_ids, off_by=generations, is_transactional=st.booleans())
    def commit(self, member_id: str | int, instance_id: str | None, off_by: int, is_transactional: bool) -> None:
        who = Committer(
            self.named(member_id), instance_id, self.generation(off_by), is_transactional=is_transactional, version=9
        )
        try:
            self.driver.group.check_commit(who)
        except Refused:
            return

    @rule(leavers=st.lists(st.tuples(member_ids, instance_ids), max_size=3))
    def leave(self, leavers: list[tuple[str | int, str | None]]) -> None:
        said = [Leaver(self.named(member_id), instance_id) for member_id, instance_id in leavers]
        assert len(self.driver.leave(*said)) == len(said)

    @rule(member_id=member_ids)
    def lose_connection(self, member_id: str | int) -> None:
        classic.connection_lost(self.driver.group, self.named(member_id), self.driver.now_ms, self.driver.rules)

    @rule(duration_ms=st.sampled_from([0, 1, SESSION_MS, REBALANCE_MS, 10 * REBALANCE_MS]))
    def pass_time(self, duration_ms: int) -> None:
        self.driver.pass_time(duration_ms)

    @rule(refuses=st.booleans())
    def turn_disk(self, refuses: bool) -> None:
        self.driver.disk_refuses = refuses

    @rule(from_checkpoint=st.booleans())
    def restart(self, from_checkpoint: bool) -> None:
        self.lost |= self.asked - self.driver.answers.keys()
        self.driver.restart(from_checkpoint=from_checkpoint)

    @invariant()
    def each_instance_is_one_member(self) -> None:
        members = self.driver.group.members
        static = [member.instance_id for member in members if member.instance_id is not None]
        assert len(static) == len(set(static))
        for member in members:
            assert member.instance_id is None or members.of_instance(member.instance_id) is member
        for instance_id in ("x", "y"):
            member = members.of_instance(instance_id)
            assert member is None or members.get(member.member_id) is member

    @invariant()
    def a_static_member_is_stored_under_its_id_or_not_at_all(self) -> None:
        # Otherwise it would be fenced after a restart, though nobody has taken its place.
        group = self.driver.group
        stored = [StoredMember(*values) for values in group.snapshot()["members"]] if group.is_stored else []
        for each in stored:
            member = None if each.instance_id is None else group.members.of_instance(each.instance_id)
            assert member is None or member.member_id == each.member_id

    @invariant()
    def sizes_are_those_of_the_members(self) -> None:
        members = self.driver.group.members
        assert members.size_bytes == sum(member.size_bytes for member in members)

    @invariant()
    def what_would_be_stored_can_be_applied(self) -> None:
        group = self.driver.group
        group.check(group.to_store({}, self.driver.now_ms))

    def teardown(self) -> None:
        self.driver.disk_refuses = False
        self.driver.carry_out(classic.close(self.driver.group, self.driver.now_ms))
        assert self.asked - self.lost <= self.driver.answers.keys(), "a request without an answer"
        assert not self.lost & self.driver.answers.keys(), "an answer to nobody"


TestConfusedMembers = ConfusedMembers.TestCase
TestConfusedMembers.settings = settings(max_examples=75, stateful_step_count=40, deadline=None)
