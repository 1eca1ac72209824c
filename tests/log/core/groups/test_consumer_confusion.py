"""Consumer groups against members that are confused or hostile: whoever can connect may say anything, in any order.

One member id under several instance ids, heartbeats in the names of others, epochs that nobody was given, members that
speak both protocols; and a broker that starts anew in between, from its journal or from a checkpoint. Whatever is said:
it is refused by the protocol or leads to a step that can be applied, and each partition and each instance has one
member at most.
"""

import json

from consumer_metadata import metadata
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from semel.log.core.entries import ConsumerGroupChanged, PartitionName
from semel.log.core.groups import consumer_requests
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.classic_steps import JoinRequest, Leaver, SyncRequest
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import AWAY_EPOCH
from semel.log.core.groups.consumer_migration import (
    check_heartbeat,
    decide_join,
    downgrade,
    is_to_downgrade,
    leaving,
    sync_answer,
)
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.topics import Catalog
from semel.log.storage.encoding import decode, encode
from semel.wire.refusals import Refused

RULES = MemberRules(session_timeout_ms=45_000, members_max=4)
TOPICS = ("orders", "payments")

# By their names, or as the first or second member that there is: the names of others are no secret.
member_ids = st.sampled_from(["m1", "m2", "m3", 0, 1])
instance_ids = st.sampled_from([None, None, "x", "y"])
epochs = st.one_of(st.sampled_from([0, 0, 0, -1, -1, -2, -3]), st.integers(-4, 12), st.just(2**31 - 1))
topic_names = st.sampled_from([("orders",), ("payments",), TOPICS, (), None])
partitions = st.frozensets(st.builds(PartitionName, st.integers(-1, 2), st.integers(0, 3)), max_size=4).map(
    Partitions.of
)
owned = st.one_of(st.just(NOTHING), st.none(), partitions)


class ConfusedMembers(RuleBasedStateMachine):
    """A group, and all that was written down about it."""

    @initialize()
    def begin(self) -> None:
        self.catalog = Catalog()
        self.group = ConsumerGroup()
        self.entries: list[ConsumerGroupChanged] = []
        self.now_ms = 1_000
        # Which instance each member is, since it is a member.
        self.instances: dict[str, str | None] = {}
        for number, name in enumerate(TOPICS):
            self.catalog.apply(self.catalog.decide_create(name, 3, {}, bytes(15) + bytes([number]), 0))

    def keep(self, entry: ConsumerGroupChanged | None) -> None:
        """As the log does it: what could not be applied must not be decided."""
        if entry is not None:
            self.group.check(entry)
            self.entries.append(entry)
            self.group.apply(entry)

    def named(self, who: str | int) -> str:
        members = list(self.group.members)
        return who if isinstance(who, str) else members[who % len(members)] if members else "nobody"

    # What anybody may say

    @rule(
        member_id=member_ids,
        instance_id=instance_ids,
        epoch=epochs,
        names=topic_names,
        owned=owned,
        timeout_ms=st.sampled_from([-1, 1, 30_000]),
        regex=st.sampled_from([None, None, "", "o.*"]),
    )
    def heartbeat(
        self,
        member_id: str | int,
        instance_id: str | None,
        epoch: int,
        names: tuple[str, ...] | None,
        owned: Partitions | None,
        timeout_ms: int,
        regex: str | None,
    ) -> None:
        member_id = self.named(member_id)
        said = Heartbeat(member_id, epoch, "client", "/host", instance_id, None, timeout_ms, names, regex, None, owned)
        try:
            consumer_requests.check(said)
            if said.leaves:
                self.keep(self.group.decide_leave("group", said, self.catalog, self.now_ms))
            else:
                self.keep(self.group.decide_heartbeat("group", said, self.catalog, RULES, self.now_ms))
                self.group.hear(member_id, RULES, self.now_ms)
                assert member_id in self.group.members
        except Refused:
            return

    @rule(member_id=member_ids, instance_id=instance_ids, names=topic_names)
    def join(self, member_id: str | int, instance_id: str | None, names: tuple[str, ...] | None) -> None:
        """A proper one, or the others would seldom get anywhere."""
        self.heartbeat(member_id, instance_id, 0, names or TOPICS, NOTHING, 30_000, None)

    @rule(member_id=member_ids, is_obedient=st.booleans())
    def go_on(self, member_id: str | int, is_obedient: bool) -> None:
        """A member says where it is, and perhaps that it reads what it may."""
        member = self.group.members.get(self.named(member_id))
        if member is not None:
            reads = member.held if is_obedient else None
            self.heartbeat(member.member_id, member.subscription.instance_id, member.epoch, None, reads, -1, None)

    @rule(member_id=member_ids, instance_id=instance_ids)
    def leave_for_a_while(self, member_id: str | int, instance_id: str | None) -> None:
        self.heartbeat(member_id, instance_id, AWAY_EPOCH, None, None, -1, None)

    @rule(
        member_id=st.sampled_from(["", "", "m1", 0, 1]),
        instance_id=instance_ids,
        names=topic_names,
        owns=st.sampled_from([{}, {"orders": [0, 1]}, {"payments": [7], "parcels": [0]}]),
    )
    def join_by_the_classic_protocol(
        self, member_id: str | int, instance_id: str | None, names: tuple[str, ...] | None, owns: dict[str, list[int]]
    ) -> None:
        new_id = f"n{len(self.entries)}"
        who = self.named(member_id), new_id, instance_id, "client", "/host", "consumer"
        request = JoinRequest(*who, {"range": metadata(names or (), owns)}, 10_000, 30_000, False, False)
        try:
            joined, entry = decide_join("group", self.group, request, self.catalog, RULES, self.now_ms)
            self.keep(entry)
            self.group.hear(joined, RULES, self.now_ms)
            self.group.note_joined(joined)
        except Refused:
            return

    @rule(member_id=member_ids, instance_id=instance_ids, generation=epochs)
    def speak_by_the_classic_protocol(self, member_id: str | int, instance_id: str | None, generation: int) -> None:
        member_id = self.named(member_id)
        for speak in (
            lambda: check_heartbeat(self.group, member_id, instance_id, generation),
            lambda: sync_answer(
                self.group, SyncRequest(member_id, instance_id, generation, "consumer", "range", {}), self.catalog
            ),
        ):
            try:
                speak()
            except Refused:
                continue

    @rule(leavers=st.lists(st.tuples(st.sampled_from(["", "m1", "m2", 0, 1]), instance_ids), max_size=3))
    def leave_by_the_classic_protocol(self, leavers: list[tuple[str | int, str | None]]) -> None:
        left = []
        for member_id, instance_id in leavers:
            try:
                left.append(leaving(self.group, Leaver(self.named(member_id), instance_id)))
            except Refused:
                continue
        if left:
            self.keep(self.group.decide_removal("group", dict.fromkeys(left), self.catalog, self.now_ms))

    # What happens meanwhile

    @rule(later_ms=st.sampled_from([1_000, 31_000, 46_000]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        overdue = self.group.overdue(self.now_ms)
        if overdue:
            self.keep(self.group.decide_removal("group", overdue, self.catalog, self.now_ms))

    @rule(from_checkpoint=st.booleans())
    def restart(self, from_checkpoint: bool) -> None:
        group = ConsumerGroup()
        if from_checkpoint:
            group.restore(json.loads(json.dumps(self.group.snapshot())))
        else:
            for entry in self.entries:
                kind, parts = encode(entry)
                again = decode(kind, memoryview(b"".join(parts)))
                assert isinstance(again, ConsumerGroupChanged)
                group.check(again)
                group.apply(again)
        assert group.snapshot() == self.group.snapshot()
        self.group = group
        self.group.hear_all(RULES, self.now_ms)

    # What always holds

    @invariant()
    def each_partition_has_one_owner(self) -> None:
        if hasattr(self, "group"):
            held = [name for member in self.group.members.values() for name in (*member.held, *member.revoking)]
            assert len(held) == len(set(held))
            assert Partitions(self.group._owners._owned) == Partitions.of(held)

    @invariant()
    def a_member_stays_the_instance_that_it_is(self) -> None:
        if hasattr(self, "group"):
            members = self.group.members.items()
            instances = {member_id: member.subscription.instance_id for member_id, member in members}
            assert instances == {**instances, **{key: self.instances[key] for key in instances & self.instances.keys()}}
            self.instances = instances

    @invariant()
    def each_instance_is_one_member(self) -> None:
        if hasattr(self, "group"):
            static = {
                member.subscription.instance_id: member_id
                for member_id, member in self.group.members.items()
                if member.subscription.instance_id is not None
            }
            assert self.group._owners._of_instance == static

    @invariant()
    def whoever_is_left_may_go_back_to_the_classic_protocol(self) -> None:
        if hasattr(self, "group") and is_to_downgrade(self.group):
            entry = downgrade("group", self.group, self.catalog, self.now_ms)
            assert entry.generation >= 0
            ClassicGroup("group").apply(entry)


TestConfusedMembers = ConfusedMembers.TestCase
TestConfusedMembers.settings = settings(max_examples=75, stateful_step_count=40, deadline=None)
