"""Consumer groups against clients as they are: slow, deaf for a while, dying; and topics that come, grow and go.

Each client keeps for itself what it reads, and lets go only when it gets round to it. At no time do two of them read
one partition, unless the broker has given one up for dead; and when all can be heard, everything is read soon.
"""

import json
from dataclasses import replace

from consumer_metadata import metadata
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.log.core.entries import ConsumerGroupChanged, PartitionName
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.classic_steps import JoinRequest, SyncRequest
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import AWAY_EPOCH, JOIN_EPOCH
from semel.log.core.groups.consumer_migration import check_heartbeat, decide_join, sync_answer
from semel.log.core.groups.consumer_requests import LEAVE_EPOCH, Heartbeat
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.topics import Catalog
from semel.log.storage.encoding import decode, encode
from semel.wire.refusals import FENCED_MEMBER_EPOCH, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, Refused

RULES = MemberRules(session_timeout_ms=45_000, members_max=6)
REBALANCE_TIMEOUT_MS = 30_000
NAMES = ["orders", "payments", "parcels"]
# Names of topics, or an expression.
Wish = tuple[str, ...] | str
WISHES: list[Wish] = [("orders",), ("payments",), ("orders", "payments"), tuple(NAMES), "p.*", ".*", ()]


class Client:
    """A consumer: what it reads, what it was told to read, and where it believes to be."""

    def __init__(self, member_id: str, instance_id: str | None, wish: Wish, assignor: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.wish = wish
        self.assignor = assignor
        self.epoch = JOIN_EPOCH
        self.reads: Partitions = NOTHING
        self.told: Partitions = NOTHING
        self.says_all = True
        self.said: Partitions | None = None
        self.sent: list[Heartbeat] = []

    def heartbeat(self) -> Heartbeat:
        beat = Heartbeat(self.member_id, self.epoch, "client", "/host", instance_id=self.instance_id)
        if self.says_all:
            beat = replace(
                beat,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                topic_names=() if isinstance(self.wish, str) else self.wish,
                topic_regex=self.wish if isinstance(self.wish, str) else "",
                assignor=self.assignor,
            )
        if self.says_all or self.said != self.reads:
            beat = replace(beat, owned=self.reads)
        self.sent.append(beat)
        return beat

    def lose_everything(self) -> None:
        self.epoch = JOIN_EPOCH
        self.reads = self.told = NOTHING
        self.says_all = True


class ClassicClient(Client):
    """A consumer of the classic protocol, eager or cooperative: it joins and syncs whenever it is told to."""

    def __init__(self, member_id: str, instance_id: str | None, wish: tuple[str, ...], is_eager: bool) -> None:
        super().__init__(member_id, instance_id, wish, None)
        self.is_eager = is_eager
        self.must_join = True

    def join_request(self, catalog: Catalog) -> JoinRequest:
        if self.is_eager:
            self.reads = NOTHING
        owned: dict[str, list[int]] = {}
        for number, index in self.reads:
            topic = catalog.numbered(number)
            if topic is not None:
                owned.setdefault(topic.name, []).append(index)
        brings = metadata(self.wish, owned)
        timeouts_ms = RULES.session_timeout_ms, REBALANCE_TIMEOUT_MS
        who = self.member_id, self.member_id, self.instance_id
        return JoinRequest(*who, "client", "/host", "consumer", {"range": brings}, *timeouts_ms, True, False)

    def lose_everything(self) -> None:
        super().lose_everything()
        self.must_join = True


class ConsumerGroupMachine(RuleBasedStateMachine):
    """The group under test, its clients, and all that was ever decided."""

    def __init__(self) -> None:
        super().__init__()
        self.catalog = Catalog()
        self.group = ConsumerGroup()
        self.entries: list[ConsumerGroupChanged] = []
        self.clients: list[Client] = []
        self.away: list[Client] = []
        self.now_ms = 1_000
        self.ids = 0

    # What happens to topics

    @initialize()
    def begin(self) -> None:
        self.create_topic("orders", 3)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def create_topic(self, name: str, count: int) -> None:
        if self.catalog.named(name) is None:
            self.ids += 1
            topic_id = self.ids.to_bytes(16, "big")
            self.catalog.apply(self.catalog.decide_create(name, count, {}, topic_id, self.now_ms))

    @rule(name=st.sampled_from(NAMES))
    def grow_topic(self, name: str) -> None:
        topic = self.catalog.named(name)
        if topic is not None and topic.partition_count < 8:
            self.catalog.apply(self.catalog.decide_partitions(name, topic.partition_count + 2))

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        if self.catalog.named(name) is not None:
            self.catalog.apply(self.catalog.decide_delete(name, 0, self.now_ms))

    # What clients do

    @precondition(lambda self: len(self.clients) + len(self.away) < 5)
    @rule(wish=st.sampled_from(WISHES), is_static=st.booleans(), assignor=st.sampled_from([None, "uniform", "range"]))
    def start_client(self, wish: Wish, is_static: bool, assignor: str | None) -> None:
        self.ids += 1
        client = Client(f"m{self.ids}", f"i{self.ids}" if is_static else None, wish, assignor)
        self.clients.append(client)
        self.speak(client)

    @precondition(lambda self: len(self.clients) + len(self.away) < 5)
    @rule(wish=st.sampled_from([wish for wish in WISHES if not isinstance(wish, str)]), is_eager=st.booleans())
    def start_classic_client(self, wish: tuple[str, ...], is_eager: bool) -> None:
        self.ids += 1
        self.clients.append(ClassicClient(f"m{self.ids}", None, wish, is_eager))
        self.speak(self.clients[-1])

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), fate=st.sampled_from(["heard", "heard", "heard", "request lost", "answer lost"]))
    def send_heartbeat(self, data: st.DataObject, fate: str) -> None:
        self.speak(data.draw(st.sampled_from(self.clients)), fate)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def do_as_told(self, data: st.DataObject) -> None:
        self.obey(data.draw(st.sampled_from(self.clients)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), wish=st.sampled_from(WISHES))
    def want_other_topics(self, data: st.DataObject, wish: Wish) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if isinstance(client, ClassicClient):
            client.must_join = True
            client.wish = client.wish if isinstance(wish, str) else wish
        else:
            client.wish = wish
            client.says_all = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def an_old_heartbeat_arrives_late(self, data: st.DataObject) -> None:
        """From an epoch that is over for the member; its sender has stopped listening for the answer."""
        client = data.draw(st.sampled_from(self.clients))
        member = self.group.members.get(client.member_id)
        epoch = -1 if member is None else member.epoch
        old = [beat for beat in client.sent if beat.epoch not in (JOIN_EPOCH, epoch)]
        if old:
            self.serve(data.draw(st.sampled_from(old)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_heard=st.booleans())
    def leave(self, data: st.DataObject, is_heard: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if is_heard:
            self.serve(Heartbeat(client.member_id, LEAVE_EPOCH, "", "", instance_id=client.instance_id))

    @precondition(lambda self: any(client.instance_id for client in self.clients))
    @rule(data=st.data())
    def leave_for_a_while(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.instance_id]))
        self.clients.remove(client)
        self.away.append(client)
        self.serve(Heartbeat(client.member_id, AWAY_EPOCH, "", "", instance_id=client.instance_id))

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.away))
        self.away.remove(old)
        self.ids += 1
        self.clients.append(Client(f"m{self.ids}", old.instance_id, old.wish, old.assignor))
        self.speak(self.clients[-1])

    @precondition(lambda self: self.group.members)
    @rule(data=st.data())
    def lose_connection(self, data: st.DataObject) -> None:
        """Alive or not: nobody can tell."""
        self.group.connection_lost(data.draw(st.sampled_from(sorted(self.group.members))), RULES, self.now_ms)

    @rule(later_ms=st.sampled_from([1_000, 20_000, 31_000, 46_000]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        deadline_ms = self.group.next_deadline_ms()
        if deadline_ms is None or deadline_ms > self.now_ms:
            assert not any(
                (member.deadline_ms or self.now_ms + 1) <= self.now_ms for member in self.group.members.values()
            )
            return
        overdue = self.group.overdue(self.now_ms)
        if overdue:
            self.keep(self.group.decide_removal("group", overdue, self.catalog, self.now_ms))

    @rule()
    def restart(self) -> None:
        """Only what is written down is left."""
        group = ConsumerGroup()
        for entry in self.entries:
            kind, parts = encode(entry)
            again = decode(kind, memoryview(b"".join(parts)))
            assert isinstance(again, ConsumerGroupChanged)
            group.apply(again)
        assert state_of(group) == state_of(self.group)
        from_checkpoint = ConsumerGroup()
        from_checkpoint.restore(json.loads(json.dumps(self.group.snapshot())))
        assert state_of(from_checkpoint) == state_of(self.group)
        self.group = group
        self.group.hear_all(RULES, self.now_ms)

    # What follows from it

    def keep(self, entry: ConsumerGroupChanged | None) -> None:
        if entry is not None:
            self.entries.append(entry)
            self.group.apply(entry)

    def serve(self, beat: Heartbeat) -> int:
        """The error that is answered to a heartbeat."""
        try:
            if beat.leaves:
                self.keep(self.group.decide_leave("group", beat, self.catalog, self.now_ms))
            else:
                self.keep(self.group.decide_heartbeat("group", beat, self.catalog, RULES, self.now_ms))
                self.group.hear(beat.member_id, RULES, self.now_ms)
        except Refused as refused:
            return refused.error
        return 0

    def obey(self, client: Client) -> None:
        """Read what there is to read; a cooperative client that lets go of something joins again."""
        if isinstance(client, ClassicClient) and not client.reads <= client.told:
            client.must_join = True
        client.reads = client.told

    def speak(self, client: Client, fate: str = "heard") -> None:
        if isinstance(client, ClassicClient):
            try:
                self.speak_classic(client, fate)
            except Refused as refused:
                if refused.error == REBALANCE_IN_PROGRESS:
                    client.must_join = True
                elif fate == "heard":
                    client.lose_everything()
        else:
            self.speak_new(client, fate)

    def speak_classic(self, client: ClassicClient, fate: str) -> None:
        if fate == "request lost":
            return
        if not client.must_join:
            try:
                check_heartbeat(self.group, client.member_id, client.instance_id, client.epoch)
            finally:
                self.group.hear(client.member_id, RULES, self.now_ms)
            return
        request = client.join_request(self.catalog)
        _, entry = decide_join("group", self.group, request, self.catalog, RULES, self.now_ms)
        self.keep(entry)
        self.group.hear(client.member_id, RULES, self.now_ms)
        self.group.note_joined(client.member_id)
        if fate == "heard":
            client.must_join = False
            client.epoch = self.group.members[client.member_id].epoch
            sync = SyncRequest(client.member_id, client.instance_id, client.epoch, "consumer", "range", {})
            sync_answer(self.group, sync, self.catalog)
            client.told = self.group.members[client.member_id].held

    def speak_new(self, client: Client, fate: str) -> None:
        beat = client.heartbeat()
        error = 0 if fate == "request lost" else self.serve(beat)
        if fate != "heard":
            client.says_all = True
        elif error in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
            client.lose_everything()
        elif error == 0:
            client.epoch = self.group.members[client.member_id].epoch
            client.told = self.group.members[client.member_id].held
            client.says_all = False
            client.said = beat.owned if beat.owned is not None else client.said

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        reader_of: dict[PartitionName, str] = {}
        for client in self.clients:
            if client.member_id in self.group.members:
                for name in client.reads:
                    assert reader_of.setdefault(name, client.member_id) == client.member_id

    @invariant()
    def no_partition_belongs_to_two(self) -> None:
        owned = [name for member in self.group.members.values() for name in (*member.held, *member.revoking)]
        assert len(owned) == len(set(owned))

    @invariant()
    def a_heartbeat_that_says_nothing_new_writes_nothing(self) -> None:
        if self.group.state_name != "Stable":
            return
        for member_id, member in self.group.members.items():
            if not member.is_classic and self.group.topics_digest == self.group._digest_now(self.catalog):
                beat = Heartbeat(member_id, member.epoch, "client", "/host")
                decided = self.group.decide_heartbeat("group", beat, self.catalog, RULES, self.now_ms)
                assert decided is None

    def teardown(self) -> None:
        """All who are there are heard, and do as they are told: soon everything is read that anybody wants."""
        self.time_passes(50_000)
        for _ in range(4 + 4 * len(self.clients)):
            for client in self.clients:
                self.obey(client)
                self.speak(client)
        assert self.group.state_name == ("Stable" if self.clients else "Empty")
        assert self.group.members.keys() == {client.member_id for client in self.clients}
        read = {name for client in self.clients for name in client.reads}
        wanted = {
            PartitionName(topic.number, index)
            for topic in self.catalog
            if self.group.is_subscribed_to(topic.name)
            for index in range(topic.partition_count)
        }
        assert read == wanted


def state_of(group: ConsumerGroup) -> object:
    members = [(member.subscription, member.position) for member in group.members.values()]
    targets = {member_id: target for member_id, target in group.targets.items() if target}
    return group.epoch, group.target_epoch, group.topics_digest, sorted(members), targets, group.changed_at_ms


ConsumerGroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestConsumerGroup = ConsumerGroupMachine.TestCase
