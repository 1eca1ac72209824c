"""One history from its seed: who takes part, what goes wrong, the healing, and the verdict."""

import asyncio
import hashlib
from collections import Counter
from typing import Final, NamedTuple

from semel.testing import checkers
from semel.testing.checkers import READ_COMMITTED, Truth
from semel.testing.virtual_loop import Deadlock, NoEnd
from semel.wire.versions import CREATE_TOPICS
from sim.client import Client
from sim.committers import OffsetCommitter
from sim.compacted import replaced
from sim.consumers import READ_UNCOMMITTED, Reader
from sim.copiers import Copier, GroupCopier, OffsetWatcher, committed_offsets
from sim.fleeting import FLEETING, FleetingCommitter, FleetingProducer, FleetingReader, Remaker, current_id, strays
from sim.members import ClassicMember, ConsumerMember, Member
from sim.nemesis import Nemesis
from sim.pair import PairWorld
from sim.pair_nemesis import PairNemesis
from sim.producers import IdempotentProducer
from sim.transactors import TransactionalProducer
from sim.world import World

PLAIN: Final = "plain"
LEDGER: Final = "ledger"
COPIES: Final = "copies"
# Compacted: only the last record of each key is kept for certain.
LATEST: Final = "latest"
TOPICS: Final = (PLAIN, LEDGER, COPIES, LATEST)
COPIERS: Final = "copiers"
COMMITTERS: Final = "committers"
FLEETING_COMMITTERS: Final = "fleeting committers"
PARTITIONS: Final = 2
RAGE_S: Final = 20.0
# By then everybody must have got on, were it only that nothing is wrong any more.
PATIENCE_S: Final = 300.0
# Longer than any transaction's timeout.
TRANSACTION_S_MAX: Final = 30.0
# Longer than the silence of a member, its session and a rebalance together.
GROUP_S_MAX: Final = 40.0
# What is too old by the clock may not go: whoever checks a history reads all of it.
CONFIGS: Final = {"segment.bytes": "4096", "retention.ms": "-1"}
COMPACTED_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "1000",
}


class Outcome(NamedTuple):
    """What came of one history."""

    seed: int
    history: list[str]
    anomalies: list[str]
    fired: Counter[str]
    operations: Counter[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()


def simulate(seed: int) -> Outcome:
    """The history of this seed, with one broker on a disk."""
    return _outcome(World(seed, "os" if seed % 10 == 9 else "fsync"), Nemesis)


def simulate_pair(seed: int) -> Outcome:
    """The history of this seed, with two brokers on a store."""
    return _outcome(PairWorld(seed), PairNemesis)


def _outcome(world: World, nemesis: type[Nemesis]) -> Outcome:
    with world.seeded_secrets():
        try:
            world.loop.run(_Cast(world, nemesis).play())
        except (TimeoutError, Deadlock, NoEnd) as error:
            world.anomaly("no progress", repr(error))
    world.count_faults()
    seed = world.seed
    return Outcome(seed, [str(event) for event in world.history], world.anomalies, world.fired, world.operations)


def configs_of(topic: str) -> dict[str, str]:
    return COMPACTED_CONFIGS if topic == LATEST else CONFIGS


class _Cast:
    """Everybody who takes part in a history."""

    def __init__(self, world: World, nemesis: type[Nemesis]) -> None:
        self._world = world
        self._nemesis = nemesis
        self._random = random = world.chance("cast")
        self._producers = [IdempotentProducer(world, f"p{n}", PLAIN, PARTITIONS) for n in range(random.randint(0, 2))]
        # Several of the same transactional id fence one another, over and over.
        self._transactors = [
            TransactionalProducer(world, f"t{number}{instance}", f"t{number}", LEDGER, PARTITIONS)
            for number in range(random.randint(1, 2))
            for instance in "ab"[: random.randint(1, 2)]
        ]
        if random.random() < 0.7:
            self._cast_keyed()
        self._remakers: list[Remaker] = []
        self._fleeting: list[FleetingReader | FleetingCommitter] = []
        self._committer = OffsetCommitter(world, "committer", COMMITTERS, PLAIN, PARTITIONS)
        if random.random() < 0.5:
            self._cast_fleeting()
        self._members: list[Member] = []
        self._copiers: list[Copier] = []
        self._watcher = OffsetWatcher(world, "watcher", COPIERS, LEDGER, PARTITIONS)
        self._readers = [
            Reader(world, f"r {topic} {isolation}", topic, PARTITIONS, isolation)
            for topic in TOPICS
            for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
        ]

    def _cast_keyed(self) -> None:
        """One or two who write the compacted topic, with and without transactions."""
        world, random = self._world, self._random
        kind = random.choice(("idempotent", "transactional", "both"))
        if kind != "transactional":
            self._producers.append(IdempotentProducer(world, "kp", LATEST, PARTITIONS))
            self._producers[-1].is_keyed = True
        if kind != "idempotent":
            self._transactors.append(TransactionalProducer(world, "kt", "kt", LATEST, PARTITIONS))
            self._transactors[-1].is_keyed = True

    def _cast_fleeting(self) -> None:
        """Who is about the topic that comes and goes."""
        world = self._world
        self._remakers = [Remaker(world, "remaker", PARTITIONS, CONFIGS)]
        self._producers.append(FleetingProducer(world, "fp", FLEETING, PARTITIONS))
        self._fleeting = [
            FleetingReader(world, "fr", PARTITIONS),
            FleetingCommitter(world, "fc", FLEETING_COMMITTERS, PARTITIONS),
        ]

    async def play(self) -> None:
        world, random = self._world, self._random
        await world.start_broker()
        await self._create_topics()
        self._cast_copiers()
        lives = [
            *(world.spawn(remaker.live(), remaker.name) for remaker in self._remakers),
            *(world.spawn(producer.live(random.randint(10, 30)), producer.name) for producer in self._producers),
            *(world.spawn(transactor.live(random.randint(4, 12)), transactor.name) for transactor in self._transactors),
        ]
        reading = [world.spawn(reader.live(), reader.name) for reader in self._readers]
        reading.append(world.spawn(self._watcher.live(), self._watcher.name))
        reading.append(world.spawn(self._committer.live(), self._committer.name))
        reading += [world.spawn(client.live(), client.name) for client in self._fleeting]
        members = [world.spawn(member.live(), member.name) for member in self._members]
        copying = [world.spawn(copier.live(), copier.name) for copier in self._copiers]
        writing = (*self._producers, *self._transactors, *self._copiers)
        everybody = (*writing, *self._members, *self._readers, self._committer, *self._fleeting)
        await self._nemesis(world, [client.name for client in everybody]).rage(RAGE_S)
        await world.heal()
        await self._finish(lives)
        for copier in self._copiers:
            copier.may_stop = True
        await self._finish(copying)
        for life in reading:
            life.cancel()
        await self._settle_group()
        for life in members:
            life.cancel()
        await self._outwait_transactions()
        self._judge(await self._truth())

    async def _create_topics(self) -> None:
        admin = Client(self._world, "admin")
        topics = [
            {
                "name": name,
                "num_partitions": PARTITIONS,
                "replication_factor": -1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in configs_of(name).items()],
            }
            for name in TOPICS
        ]
        answer = await admin.ask(CREATE_TOPICS, 7, topics=topics, timeout_ms=1000, validate_only=False)
        self._topic_ids = {created.name: created.topic_id for created in answer.topics}

    def _cast_copiers(self) -> None:
        """Nobody, workers that succeed one another, or members of a group of either protocol."""
        world, random = self._world, self._random
        kind = random.choice(("none", "workers", "classic", "consumer", "mixed"))
        protocols = {"classic": [ClassicMember], "consumer": [ConsumerMember], "mixed": [ClassicMember, ConsumerMember]}
        names = [f"c{letter}" for letter in "abc"[: random.randint(1, 3)]]
        if kind == "workers":
            self._copiers = [Copier(world, name, "c", COPIERS, LEDGER, COPIES, PARTITIONS) for name in names]
        elif kind != "none":
            for name in names:
                protocol: type[Member] = random.choice(protocols[kind])
                member = protocol(world, f"m{name}", COPIERS, LEDGER, self._topic_ids[LEDGER], PARTITIONS)
                if isinstance(member, ConsumerMember) and self._fleeting:
                    member.topics_besides = [FLEETING]
                self._members.append(member)
                self._copiers.append(GroupCopier(world, member, name, LEDGER, COPIES, PARTITIONS))

    async def _settle_group(self) -> None:
        """When nothing goes wrong any more, every partition has an owner, and one only."""
        if self._members:
            await asyncio.sleep(GROUP_S_MAX)
            owned = sorted(partition for member in self._members for partition in member.assigned)
            if owned != list(range(PARTITIONS)):
                shares = {member.name: (member.generation, sorted(member.assigned)) for member in self._members}
                self._world.anomaly("no progress", f"the group does not settle: {shares}")
            await self._settle_besides()

    async def _settle_besides(self) -> None:
        """Of a topic that was made anew, what there is now has an owner, and what there was before has none."""
        askers = [member for member in self._members if isinstance(member, ConsumerMember) and member.topics_besides]
        if askers:
            topic_id = await current_id(Client(self._world, "settling"))
            owned = sorted(place for member in askers for place in member.assigned_besides)
            if owned != [(topic_id, index) for index in range(PARTITIONS)]:
                shares = {member.name: sorted(member.assigned_besides) for member in askers}
                self._world.anomaly("no progress", f"the group does not settle besides, with {topic_id!r}: {shares}")

    async def _finish(self, lives: list["asyncio.Task[None]"]) -> None:
        late = (await asyncio.wait(lives, timeout=PATIENCE_S))[1] if lives else ()
        for task in sorted(late, key=lambda task: task.get_name()):
            self._world.anomaly("no progress", f"{task.get_name()} has not come to its end")

    async def _outwait_transactions(self) -> None:
        """What nobody ends any more ends by its deadline."""
        await asyncio.sleep(TRANSACTION_S_MAX)

    async def _truth(self) -> Truth:
        truth = Truth()
        for topic in TOPICS:
            everything = Reader(self._world, f"last {topic} 0", topic, PARTITIONS, READ_UNCOMMITTED)
            committed = Reader(self._world, f"last {topic} 1", topic, PARTITIONS, READ_COMMITTED)
            all_records, committed_records = await everything.read_all(), await committed.read_all()
            for partition in range(PARTITIONS):
                place = topic, partition
                truth.all_records[place] = all_records[partition]
                truth.committed[place] = committed_records[partition]
                truth.ends[place] = committed.positions[partition], everything.positions[partition]
        if self._fleeting:
            await self._find_fleeting(truth)
        last = Client(self._world, "last offsets")
        offsets = await committed_offsets(last, COPIERS, LEDGER, PARTITIONS, stable=True)
        await committed_offsets(last, COMMITTERS, PLAIN, PARTITIONS, stable=True)
        truth.offsets = {(COPIERS, (LEDGER, partition)): offset for partition, offset in enumerate(offsets)}
        return truth

    async def _find_fleeting(self, truth: Truth) -> None:
        reader = FleetingReader(self._world, "last fleeting", PARTITIONS)
        await reader.turn_to_current()
        for partition, records in enumerate(await reader.read_all()):
            place = reader.topic, partition
            truth.all_records[place] = truth.committed[place] = records

    def _judge(self, truth: Truth) -> None:
        history = self._world.history
        gone = replaced(history, truth, (LATEST,))
        dense = {PLAIN, *(topic for topic, _ in truth.all_records if topic.startswith(FLEETING))}
        for found in (
            checkers.lost_writes(history, truth, gone),
            checkers.duplicates(truth),
            checkers.disorder(truth, dense=dense),
            checkers.unfaithful_reads(history, truth, gone),
            checkers.stuck(truth),
            checkers.broken_transactions(history, truth, gone),
            checkers.zombies(history),
            checkers.unfaithful_copies(truth, COPIERS, LEDGER, COPIES),
            checkers.dirty_offsets(history, COPIERS),
            checkers.lost_commits(history, COMMITTERS),
            checkers.lost_commits(history, FLEETING_COMMITTERS),
            strays(history, truth),
            checkers.shared_ownership(history),
        ):
            for text in found:
                name, _, told = text.partition(": ")
                self._world.anomaly(name, told)
