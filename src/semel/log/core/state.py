"""The whole state of a broker: topics, partitions, producer ids, transactions, groups, access rules, users, quotas.

Each of these is a state machine. `State.apply` is the only way to change them, in service and in recovery alike: the
table in `State.__init__` says which machines apply which entry, and in which order. A `Holder` has everything else that
belongs to a partition, such as its records on disk. The broker's holders have the records, those of `semel dump` have
none, and yet both come to the same state. Nothing here may read or write a file.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from semel.log.core.access import RULES_MAX, AccessRules
from semel.log.core.entries import (
    AccessRulesAdded,
    AccessRulesRemoved,
    BatchAppended,
    ClassicGroupChanged,
    ConfigsChanged,
    ConsumerGroupChanged,
    Entry,
    GroupConfigsChanged,
    GroupDeleted,
    LoginSecretMade,
    LogStartMoved,
    OffsetsCommitted,
    OffsetsForgotten,
    PartitionName,
    PartitionsAdded,
    ProducerIdsReserved,
    QuotasChanged,
    ShareGroupChanged,
    ShareStartsSet,
    ShareStatesChanged,
    TopicCreated,
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
    UserCredentialRemoved,
    UserCredentialSet,
)
from semel.log.core.groups.groups import Groups
from semel.log.core.partition import Partition
from semel.log.core.producer_ids import ProducerIds
from semel.log.core.quotas import Quotas
from semel.log.core.shares import Shares
from semel.log.core.silence import Silence
from semel.log.core.topics import Catalog, Topic
from semel.log.core.transaction_rules import TRANSACTION_BOUNDS, TransactionBounds, TransactionRules
from semel.log.core.transactions import Transactions
from semel.log.core.users import Users
from semel.wire.batch import TRANSACTIONAL_BIT, BatchHeader, control_header, read_header


class Holder(Protocol):
    """A partition's state together with everything else that belongs to the partition, such as its files."""

    @property
    def name(self) -> PartitionName: ...

    @property
    def state(self) -> Partition: ...

    def apply_append(self, header: BatchHeader, at_ms: int) -> None: ...

    def apply_marker(self, header: BatchHeader, at_ms: int, committed: bool) -> None: ...

    def apply_log_start(self, offset: int) -> None: ...

    def forget_silent(self, before_ms: int, at_most: int) -> int: ...

    def drop(self) -> None:
        """The topic was deleted: delete the rest, too."""


H = TypeVar("H", bound=Holder)

# Makes the partition of a topic with this index. The last argument is the partition's `lenient_blocks`.
MakeHolder = Callable[[Topic, int, int], H]
PartitionEntry = TopicCreated | PartitionsAdded | TopicDeleted | LogStartMoved | TransactionEnded


class Machine(Protocol):
    """A state machine that applies entries."""

    def check(self, entry: Any, /) -> None:
        """ValueError for an entry that cannot follow those before it."""

    def apply(self, entry: Any, /) -> object:
        """Apply an entry that `check` has accepted."""


class _OfTopic(Generic[H]):
    """The partitions of one topic. Each is made when it is first needed: a client may create twenty thousand at once,
    and every other request would wait until all of them are made. One that was never needed has no records.
    """

    __slots__ = ("_growth", "_make", "_note_made", "_topic", "count", "made")

    def __init__(self, topic: Topic, make: MakeHolder[H], note_made: Callable[[H], None]) -> None:
        self._topic = topic
        self._make = make
        self._note_made = note_made
        self.count = 0
        # By index.
        self.made: dict[int, H] = {}
        # Each time the topic grew: the count before, and the `lenient_blocks` of its new partitions.
        self._growth: list[tuple[int, int]] = []

    def grow(self, count: int, lenient_blocks: int) -> None:
        self._growth.append((self.count, lenient_blocks))
        self.count = count

    def at(self, index: int) -> H | None:
        holder = self.made.get(index)
        if holder is None and 0 <= index < self.count:
            slot = bisect_right(self._growth, index, key=itemgetter(0)) - 1
            holder = self.made[index] = self._make(self._topic, index, self._growth[slot][1])
            self._note_made(holder)
        return holder

    def all(self) -> Iterator[H]:
        return (holder for index in range(self.count) if (holder := self.at(index)) is not None)


class Partitions(Generic[H]):
    """The partitions of all topics."""

    def __init__(self, catalog: Catalog, make: MakeHolder[H]) -> None:
        self._catalog = catalog
        self._make = make
        self._by_topic: dict[int, _OfTopic[H]] = {}
        # Those that were made, of all topics, by the numbers of topic and partition.
        self._used: dict[tuple[int, int], H] = {}
        # How many producers are on record, counted in each partition.
        self.producer_count = 0
        # Rises at a start that may have lost acknowledged records. Every batch has the epoch in which it was appended.
        self.leader_epoch = 0

    def at(self, number: int, index: int) -> H | None:
        """The partition of the topic with this number; None if there is none."""
        holder = self._used.get((number, index))
        if holder is None and (of_topic := self._by_topic.get(number)) is not None:
            holder = of_topic.at(index)
        return holder

    def named(self, number: int, index: int) -> H:
        """The same; ValueError if there is none, because the journal is damaged."""
        holder = self.at(number, index)
        if holder is None:
            raise ValueError(f"there is no partition {index} of a topic with number {number}")
        return holder

    def of(self, topic: Topic) -> list[H]:
        """All partitions of a topic. Those that were not needed before are made, so this is not for the event loop."""
        return list(self._by_topic[topic.number].all())

    def all(self) -> list[H]:
        """All partitions of all topics, likewise."""
        return [holder for of_topic in self._by_topic.values() for holder in of_topic.all()]

    def used(self) -> list[H]:
        """The partitions that were needed so far. No other has any records, or anything else to keep."""
        return list(self._used.values())

    def used_of(self, number: int) -> list[H]:
        """The same for the topic with this number."""
        of_topic = self._by_topic.get(number)
        return [] if of_topic is None else list(of_topic.made.values())

    def ended_by(self, entry: TransactionEnded) -> list[H]:
        """The partitions in which a transaction ends, except those of deleted topics."""
        return [holder for name in entry.partitions if (holder := self.at(*name)) is not None]

    def dropped_by(self, entry: Entry) -> list[H]:
        """The partitions that an entry deletes."""
        return self.used_of(entry.number) if isinstance(entry, TopicDeleted) else []

    def check(self, entry: PartitionEntry) -> None:
        if isinstance(entry, LogStartMoved):
            self.named(entry.number, entry.partition).state.check_log_start(entry.offset)

    def apply(self, entry: PartitionEntry) -> None:
        """Change the partitions as the entry says. The catalog has applied the entry before."""
        match entry:
            case TransactionEnded():
                for holder in self.ended_by(entry):
                    self._apply_marker(holder, entry)
            case LogStartMoved():
                self.named(entry.number, entry.partition).apply_log_start(entry.offset)
            case TopicDeleted():
                for holder in self._by_topic.pop(entry.number).made.values():
                    del self._used[holder.name]
                    self.producer_count -= len(holder.state.producers)
                    holder.drop()
            case _:
                self.note_size(self._catalog.known(entry.number))

    def _apply_marker(self, holder: H, entry: TransactionEnded) -> None:
        state = holder.state
        before = len(state.producers)
        marker = entry.producer_id, entry.marker_epoch, state.next_offset, self.leader_epoch, entry.at_ms
        holder.apply_marker(control_header(*marker), entry.at_ms, entry.committed)
        self.producer_count += len(state.producers) - before

    def note_size(self, topic: Topic) -> None:
        """The topic is new, or has more partitions."""
        of_topic = self._by_topic.setdefault(topic.number, _OfTopic(topic, self._make, self._note_made))
        of_topic.grow(topic.partition_count, self._catalog.lenient_blocks(topic.name))

    def _note_made(self, holder: H) -> None:
        self._used[holder.name] = holder

    def forget_silent(self, holder: H, before_ms: int, at_most: int) -> int:
        """Forget some producers of a partition that were last heard before `before_ms`; return how many."""
        count = holder.forget_silent(before_ms, at_most)
        self.producer_count -= count
        return count


class State(Generic[H]):
    """All machines, and the only way to change them."""

    def __init__(
        self,
        catalog: Catalog,
        groups: Groups,
        producer_shares: Shares,
        make: MakeHolder[H],
        transaction_bounds: TransactionBounds = TRANSACTION_BOUNDS,
        access_rules_max: int = RULES_MAX,
    ) -> None:
        self.cluster_id = ""
        self.catalog = catalog
        self.partitions = Partitions(catalog, make)
        self.producer_ids = ProducerIds()
        self.transactions = transactions = Transactions()
        self.transaction_rules = TransactionRules(transactions, transaction_bounds)
        self.groups = groups
        self.access = AccessRules(access_rules_max)
        self.users = Users()
        self.quotas = Quotas()
        self.silence = Silence()
        self.producer_shares = producer_shares
        # The machines that apply each type of entry, in this order. Only a batch goes another way: `apply_batch`.
        self._machines: Final[Mapping[type[Entry], tuple[Machine, ...]]] = {
            TopicCreated: (catalog, self.partitions),
            TopicDeleted: (catalog, transactions, groups, self.producer_ids, self.partitions),
            PartitionsAdded: (catalog, self.partitions),
            ConfigsChanged: (catalog,),
            LogStartMoved: (self.partitions,),
            ProducerIdsReserved: (self.producer_ids,),
            TransactionalIdClaimed: (transactions,),
            TransactionGrew: (transactions,),
            TransactionalOffsets: (transactions, groups),
            TransactionEnded: (self.partitions, transactions, groups),
            TransactionalIdsForgotten: (transactions,),
            OffsetsCommitted: (groups,),
            OffsetsForgotten: (groups,),
            ClassicGroupChanged: (groups,),
            ConsumerGroupChanged: (groups,),
            ShareGroupChanged: (groups,),
            ShareStatesChanged: (groups,),
            ShareStartsSet: (groups,),
            GroupConfigsChanged: (groups,),
            GroupDeleted: (groups,),
            AccessRulesAdded: (self.access,),
            AccessRulesRemoved: (self.access,),
            UserCredentialSet: (self.users,),
            UserCredentialRemoved: (self.users,),
            LoginSecretMade: (self.users,),
            QuotasChanged: (self.quotas,),
        }

    def check(self, entry: Entry) -> None:
        """ValueError unless this entry can follow those before it.

        The log calls this before it writes an entry to the journal, because the broker could never start again with a
        journal that has an entry it cannot apply. Recovery calls it for every entry of the journal.
        """
        try:
            if isinstance(entry, BatchAppended):
                header = read_header(entry.batch)
                self.partitions.named(entry.number, entry.partition).state.check_append(header)
                if header.is_transactional:
                    self.transactions.known(header.producer_id)
            else:
                for machine in self._machines[type(entry)]:
                    machine.check(entry)
        except (LookupError, TypeError) as error:
            raise ValueError(repr(error)) from error

    def apply(self, entry: Entry) -> None:
        """Apply an entry that `check` has accepted."""
        if isinstance(entry, BatchAppended):
            holder = self.partitions.named(entry.number, entry.partition)
            self.apply_batch(holder, read_header(entry.batch), entry.at_ms)
        else:
            for machine in self._machines[type(entry)]:
                machine.apply(entry)

    def apply_batch(self, holder: H, header: BatchHeader, at_ms: int, address: str | None = None) -> None:
        """The same for a batch whose partition and header the caller already has. `address` is the sender's: it is
        charged if the batch puts a new producer on record.
        """
        producers = holder.state.producers
        before = len(producers)
        holder.apply_append(header, at_ms)
        if len(producers) > before:
            self.partitions.producer_count += 1
            if address is not None and not self.transactions.takes_part(header.producer_id, holder.name):
                self.producer_shares.charge(1, address, at_ms, self.silence.horizon_ms)
        if header.attributes & TRANSACTIONAL_BIT:
            self.transactions.apply_batch(header.producer_id, holder.name, at_ms)

    def check_producer_share(self, producer_id: int, name: PartitionName, address: str | None) -> None:
        """Refused unless this address may put one more producer on record in a partition."""
        if self.transactions.takes_part(producer_id, name):
            # Its address was charged when AddPartitionsToTxn added the partition.
            address = None
        self.producer_shares.check(1, self.partitions.producer_count, address, self.silence.horizon_ms)

    def check_producer_shares(self, producer_id: int, partitions: Iterable[PartitionName], address: str | None) -> int:
        """In how many of these partitions a transaction's end would put its producer on record; refused if too many.

        Partitions that were added earlier, to transactions that are still open, do not count: they have a limit of
        their own.
        """
        places = [self.partitions.named(*name).state for name in partitions]
        count = sum(place.producers.get(producer_id) is None for place in places)
        if count:
            self.producer_shares.check(count, self.partitions.producer_count, address, self.silence.horizon_ms)
        return count

    def strays(self) -> Iterator[tuple[H, int]]:
        """The open transactions of a partition, by producer id, that no transactional id owns.

        There are none unless a checkpoint contradicts itself. No request could ever end them.
        """
        for holder in self.partitions.used():
            for producer_id in tuple(holder.state.open_transactions):
                if not self.transactions.takes_part(producer_id, holder.name):
                    yield holder, producer_id

    # -- checkpoints --------------------------------------------------------------------------------------------

    def begin_snapshot(self) -> dict[str, Any]:
        """The state as of now, without the partitions. Groups may be many: they are added while
        `Groups.take_all` runs.
        """
        return {
            "cluster_id": self.cluster_id,
            "leader_epoch": self.partitions.leader_epoch,
            "producer_shares": self.producer_shares.snapshot(),
            "catalog": self.catalog.snapshot(),
            "producer_ids": self.producer_ids.snapshot(),
            "transactions": self.transactions.snapshot(),
            "groups": self.groups.begin_snapshot(),
            "access": self.access.snapshot(),
            "users": self.users.snapshot(),
            "quotas": self.quotas.snapshot(),
            "silence": self.silence.snapshot(),
        }

    def restore(self, snapshot: Mapping[str, Any], restore_partitions: Callable[[], None]) -> None:
        """Load the state in `snapshot`. It calls `restore_partitions` when the partitions exist but are empty."""
        self.cluster_id = snapshot["cluster_id"]
        self.partitions.leader_epoch = snapshot["leader_epoch"]
        self.producer_shares.restore(snapshot["producer_shares"])
        self.catalog.restore(snapshot["catalog"])
        self.producer_ids.restore(snapshot["producer_ids"])
        self.transactions.restore(snapshot["transactions"])
        self.groups.restore(snapshot["groups"])
        self.access.restore(snapshot["access"])
        self.users.restore(snapshot["users"])
        self.quotas.restore(snapshot["quotas"])
        self.silence.restore(snapshot["silence"])
        for topic in self.catalog:
            self.partitions.note_size(topic)
        restore_partitions()
        self.partitions.producer_count = sum(len(holder.state.producers) for holder in self.partitions.used())
