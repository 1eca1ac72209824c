"""A log's callers in miniature, and a ledger of what they did: what every log must be found to hold after a crash.

The ledger is as naive as can be: the list of all changes in the order in which they were made, and how many of them
were acknowledged. What a recovered log holds must be exactly what some beginning of that list makes, one that leaves
out nothing acknowledged. `Caller` drives a log as the broker does: a refused change is tried again, a failed sync is
the end. It must never know more of the log than a caller may.
"""

import contextlib
import errno
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from crc32c import crc32c

from committed import committed_by
from log_contents import EMPTY, Content, TopicContent, brief, changed, content_of, kept
from semel.log.core.batch_checks import Sender, Verdict
from semel.log.core.entries import (
    BatchAppended,
    ConfigsChanged,
    Entry,
    LogStartMoved,
    OffsetsCommitted,
    PartitionsAdded,
    StoredOffset,
    TopicCreated,
    TopicDeleted,
    TransactionEnded,
)
from semel.log.core.producer_table import TableBounds
from semel.log.core.topics import Topic
from semel.log.core.transactions import Owner
from semel.log.storage import aside, checkpoint, end_notes, producer_pages
from semel.log.storage.aborted_blocks import BlockLayout
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.files import Files
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.producer_pages import ProducerPages
from semel.wire.batch import (
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    read_header,
)
from semel.wire.refusals import Refused
from semel.wire.sequences import WINDOW_BATCHES, Outcome
from semel.wire.steps import finish

# Blocks and their files are tiny, so that there are some wherever there are transactions.
# A page of producers has two, and few are outside of pages.
SETTINGS = LogSettings(
    journal_file_bytes=4096,
    checkpoint_bytes=8192,
    aborted_blocks=BlockLayout(1, 2),
    producer_bounds=TableBounds(page=2, recent_min=1, recent_max=2, moved_at_once=1),
    pages_inline_bytes_max=0,
)
NOW_MS = 1_700_000_000_000


class Stopped(Exception):
    """The disk failed in a way after which a broker stops serving."""


def batch(
    producer_id: int = -1,
    sequence: int = -1,
    records: int = 1,
    *,
    epoch: int = 0,
    size: int = 100,
    mark: int = 0,
    at_ms: int = NOW_MS,
    attributes: int = 0,
) -> bytearray:
    """A batch as a client sends it, `size` bytes long; batches with another `mark` hold other records."""
    payload = (b"%08d" % mark * (size // 8))[: size - HEADER_BYTES]
    made = bytearray(
        HEADER.pack(
            0,
            size - 12,
            -1,
            MAGIC,
            0,
            attributes,
            records - 1,
            at_ms,
            at_ms,
            producer_id,
            epoch if producer_id >= 0 else -1,
            sequence,
            records,
        )
        + payload
    )
    CHECKSUM.pack_into(made, CHECKSUM_POSITION, crc32c(memoryview(made)[CHECKED_FROM:]))
    return made


class Change(NamedTuple):
    """A change and the position of the journal that has to be durable before it counts."""

    entry: Entry
    end: int


@dataclass
class Ledger:
    """All changes of a log, in order."""

    changes: list[Change] = field(default_factory=list)
    # So many of the changes, from the first on, were acknowledged.
    acknowledged: int = 0
    # What was asked for last, while it is not known what became of it.
    in_flight: Entry | None = None
    # The producer ids that clients know of.
    producer_ids: set[int] = field(default_factory=set)

    def copy(self) -> "Ledger":
        """A ledger to go on with, while this one stays as it is."""
        return replace(self, changes=list(self.changes), producer_ids=set(self.producer_ids))

    def acknowledge(self, position: int) -> None:
        """Everything before this position of the journal has become durable."""
        while self.acknowledged < len(self.changes) and self.changes[self.acknowledged].end <= position:
            self.acknowledged += 1

    def entries(self) -> list[Entry]:
        """Every change that was ever asked for, the last of them perhaps in vain."""
        return [change.entry for change in self.changes] + ([self.in_flight] if self.in_flight is not None else [])

    def content(self, count: int) -> Content:
        """What a log holds after the first `count` changes."""
        entries = self.entries()[:count]
        topics: dict[int, TopicContent] = {}
        for entry in entries:
            match entry:
                case TopicCreated():
                    empty = (EMPTY,) * entry.partition_count
                    topics[entry.number] = TopicContent(entry.name, entry.configs, empty)
                case TopicDeleted():
                    del topics[entry.number]
                case PartitionsAdded():
                    topic = topics[entry.number]
                    more = (EMPTY,) * (entry.partition_count - len(topic.partitions))
                    topics[entry.number] = topic._replace(partitions=topic.partitions + more)
                case ConfigsChanged():
                    topics[entry.number] = topics[entry.number]._replace(configs=entry.configs)
                case LogStartMoved() | BatchAppended():
                    topic = topics[entry.number]
                    partitions = list(topic.partitions)
                    partitions[entry.partition] = changed(partitions[entry.partition], entry)
                    topics[entry.number] = topic._replace(partitions=tuple(partitions))
                case TransactionEnded():
                    for number, index in entry.partitions:
                        if number in topics:
                            partitions = list(topics[number].partitions)
                            partitions[index] = changed(partitions[index], entry)
                            topics[number] = topics[number]._replace(partitions=tuple(partitions))
        return Content({number: kept(topic) for number, topic in topics.items()}, committed_by(entries))

    def windows(self, count: int) -> dict[tuple[int, int, int], list[bytes]]:
        """For topic, partition and producer id: the batches of its latest epoch, after the first `count` changes."""
        topics: set[int] = set()
        kept: dict[tuple[int, int, int], list[bytes]] = defaultdict(list)
        for entry in self.entries()[:count]:
            if isinstance(entry, BatchAppended):
                stored = bytes(entry.batch)
                header = read_header(stored)
                window = kept[entry.number, entry.partition, header.producer_id]
                if window and read_header(window[-1]).producer_epoch != header.producer_epoch:
                    window.clear()
                window.append(stored)
            elif isinstance(entry, TransactionEnded):
                for number, index in entry.partitions:
                    if number in topics:
                        window = kept[number, index, entry.producer_id]
                        if window and read_header(window[-1]).producer_epoch < entry.marker_epoch:
                            window.clear()
            elif isinstance(entry, TopicCreated):
                topics.add(entry.number)
            elif isinstance(entry, TopicDeleted):
                topics.discard(entry.number)
                kept = defaultdict(list, {key: value for key, value in kept.items() if key[0] != entry.number})
        return {key: value for key, value in kept.items() if key[2] >= 0}

    def is_told_by(self, found: Content, count: int) -> bool:
        """Whether this is what a log holds after the first `count` changes."""
        return self.content(count) == found

    def settle_on(self, log: Log) -> list[BatchAppended]:
        """Find the changes that `log` holds and forget the others; answer the batches among those."""
        found = content_of(log)
        entries = self.entries()
        for count in range(self.acknowledged, len(entries) + 1):
            if self.is_told_by(found, count):
                lost = entries[count:]
                if count > len(self.changes):
                    self.changes.append(Change(entries[-1], log.end))
                del self.changes[count:]
                self.in_flight = None
                self.acknowledged = count
                return [entry for entry in lost if isinstance(entry, BatchAppended)]
        raise AssertionError(
            f"{self.acknowledged} of {len(entries)} changes were acknowledged, and the log holds no beginning of them"
            f" that long.\nfound:    {brief(found)}\nat least: {brief(self.content(self.acknowledged))}"
            f"\nat most:  {brief(self.content(len(entries)))}"
        )


class Caller:
    """Whoever drives a log: changes go into the ledger, refused ones are tried once more."""

    def __init__(
        self, files: Files, ledger: Ledger, settings: LogSettings = SETTINGS, cluster_id: str = "a-cluster"
    ) -> None:
        self.ledger = ledger
        self.refused = 0
        self.now_ms = NOW_MS
        self.log = Log.open(files, new_cluster_id=cluster_id, settings=settings, time_of_day=lambda: NOW_MS / 1000)
        self._commit = self.log.commit
        self.log.commit = self._recorded  # type: ignore[method-assign]
        self.marks = 0

    def _recorded(self, entry: Entry) -> None:
        self.ledger.in_flight = entry
        try:
            self._commit(entry)
        except OSError:
            self.ledger.in_flight = None
            raise
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        self.ledger.changes.append(Change(entry, self.log.end))
        self.ledger.in_flight = None

    def commit(self, entry: Entry) -> bool:
        """Make a change; False if it was refused twice."""
        return self._tried(lambda: self.log.commit(entry)) is not REFUSED

    def _tried(self, action: Any) -> Any:
        for _ in range(2):
            try:
                return action()
            except OSError:
                self.refused += 1
        return REFUSED

    def create(self, name: str, partitions: int = 1, **configs: str) -> Topic | None:
        settled = {key.replace("_", "."): value for key, value in configs.items()}
        topic_id = (len(self.ledger.entries()) + 1).to_bytes(16, "big")
        self.commit(self.log.state.catalog.decide_create(name, partitions, settled, topic_id, self.now_ms))
        return self.log.state.catalog.named(name)

    def delete(self, name: str) -> None:
        if self.log.state.catalog.named(name) is not None:
            self.commit(
                self.log.state.catalog.decide_delete(name, self.log.state.producer_ids.block_count, self.now_ms)
            )

    def delete_records(self, partition: PartitionLog, offset: int = -1) -> None:
        start = partition.state.decide_log_start(offset, partition.readable.offset)
        if start > partition.state.log_start:
            self.commit(LogStartMoved(partition.topic_number, partition.index, start))

    def retain(self) -> None:
        self._tried(lambda: finish(self.log.retain(self.now_ms)))

    def producer_id(self) -> int:
        """A producer id, known to its client because it is durable; -1 if there is none to be had."""
        producer_id = self._tried(lambda: self.log.new_producer_id(self.now_ms))
        if producer_id is REFUSED:
            return -1
        self.sync()
        assert producer_id not in self.ledger.producer_ids, "a producer id was handed out twice"
        self.ledger.producer_ids.add(producer_id)
        return int(producer_id)

    def claim(self, transactional_id: str) -> int:
        """Become the owner of a transactional id; -1 if the disk did not let it. Whoever was before is fenced."""
        producer_id = self._tried(lambda: self._claim(transactional_id))
        return -1 if producer_id is REFUSED else int(producer_id)

    def _claim(self, transactional_id: str) -> int:
        claim = self.log.state.transaction_rules.decide_init(
            transactional_id, 60_000, None, lambda: self.log.new_producer_id(self.now_ms), self.now_ms
        )
        for entry in claim.entries:
            self.log.commit(entry)
        return claim.producer_id

    def end(self, transactional_id: str, committed: bool, *, raises_epoch: bool) -> None:
        """End the open transaction, if there is one."""
        transactions = self.log.state.transactions
        found = transactions.described(transactional_id)
        if found is None or not transactions.is_open(found.owner.producer_id):
            return
        said = found.owner.producer_id, found.owner.producer_epoch
        end = self.log.state.transaction_rules.decide_end(
            transactional_id,
            *said,
            committed,
            lambda: self.log.new_producer_id(self.now_ms),
            self.now_ms,
            raises_epoch=raises_epoch,
        )
        assert end.entry is not None
        self.commit(end.entry)

    def commit_offset(self, group: str, partition: PartitionLog, offset: int, transactional_id: str = "") -> None:
        """Note how far a group has come, at once or when the transaction ends."""
        stored = StoredOffset(*partition.name, offset, 0, f"noted {len(self.ledger.changes)}")
        found = self.log.state.transactions.described(transactional_id)
        if not transactional_id:
            self.commit(OffsetsCommitted(group, (stored,), -1, self.now_ms))
        elif found is not None:
            said = found.owner.producer_id, found.owner.producer_epoch
            self.commit(
                self.log.state.transaction_rules.decide_offsets(
                    transactional_id, *said, group, (stored,), self.now_ms, joins=True
                )
            )

    def append(self, partition: PartitionLog, sent: bytearray) -> Verdict | None:
        """Send a batch; None if it was refused twice."""
        appended = self._tried(lambda: self._append(partition, bytearray(sent)))
        return appended if isinstance(appended, Verdict) else None

    def _append(self, partition: PartitionLog, sent: bytearray) -> Verdict:
        topic = self.log.state.catalog.numbered(partition.topic_number)
        assert topic is not None
        # The log writes the offset into these very bytes, so the entry is right as soon as it matters.
        entry = BatchAppended(topic.number, partition.index, self.now_ms, memoryview(sent))
        before = self.log.end
        self.ledger.in_flight = entry
        try:
            appended = self.log.append(topic, partition, read_header(sent), sent, self.now_ms, Sender(joins=True))
        except (OSError, Refused):
            self.ledger.in_flight = None
            raise
        if appended.outcome is Outcome.ACCEPTED:
            self._note(entry)
        else:
            self.ledger.in_flight = None
            assert self.log.end == before, "what was not accepted was written"
        return appended

    def next_batch(self, partition: PartitionLog, producer_id: int, records: int = 1, size: int = 100) -> bytearray:
        """What this producer sends next to this partition."""
        sent = self.ledger.windows(len(self.ledger.changes)).get((partition.topic_number, partition.index, producer_id))
        last = read_header(sent[-1]) if sent else None
        sequence = (last.base_sequence + last.record_count) & 0x7FFF_FFFF if last else 0
        epoch = last.producer_epoch if last else 0
        owned = [owner for owner in self.owners() if owner.producer_id == producer_id]
        if owned and owned[0].producer_epoch != epoch:
            sequence, epoch = 0, owned[0].producer_epoch
        self.marks += 1
        mark = self.marks + 1000 * len(self.ledger.producer_ids)
        return batch(
            producer_id,
            sequence if producer_id >= 0 else -1,
            records,
            epoch=epoch,
            size=size,
            mark=mark,
            at_ms=self.now_ms,
            attributes=TRANSACTIONAL_BIT if owned else 0,
        )

    def owners(self) -> list[Owner]:
        """Who the transactional ids belong to: what their owners were told."""
        return [found.owner for found in self.log.state.transactions.all_described()]

    def sync(self) -> None:
        """Make everything durable, and acknowledge it; `Stopped` if the disk fails."""
        job = self.log.begin_sync()
        try:
            job.run()
        except OSError as error:
            raise Stopped(str(error)) from error
        self.log.finish_sync(job)
        self.log.settle(self.log.synced)
        self.ledger.acknowledge(self.log.synced)

    def checkpoint(self, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Write a checkpoint; False if there is no space for it, `Stopped` if the disk fails."""
        job = finish(self.log.begin_checkpoint())
        meanwhile()
        return self.end_checkpoint(job)

    def end_checkpoint(self, job: CheckpointJob) -> bool:
        """Write a checkpoint that was begun before."""
        try:
            job.run()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self.refused += 1
                self.log.fail_checkpoint(job)
                return False
            raise Stopped(str(error)) from error
        try:
            finish(self.log.finish_checkpoint(job))
        except OSError:
            self.refused += 1
        return True

    def close(self) -> None:
        """Stop in good order: everything counts."""
        try:
            self.log.close()
        except OSError as error:
            raise Stopped(str(error)) from error
        self.ledger.acknowledged = len(self.ledger.changes)

    def check_windows(self) -> None:
        """Every batch that a producer may send again is known, with its offset; the one before those is not."""
        windows = self.ledger.windows(len(self.ledger.changes))
        for (number, index, _), sent in windows.items():
            partition = self.log.state.partitions.of(self.topic(number))[index]
            for stored in sent[-WINDOW_BATCHES:]:
                header = read_header(stored)
                answer = self._append(partition, bytearray(stored))
                assert answer.outcome is Outcome.DUPLICATE, (header, answer)
                assert answer.base_offset == header.base_offset, (header, answer)
                assert answer.timestamp_ms == (header.max_timestamp if header.attributes & 8 else -1)
            if len(sent) > WINDOW_BATCHES:
                # Whoever sends it in a transaction may hear that the transaction is over instead.
                with contextlib.suppress(Refused):
                    answer = self._append(partition, bytearray(sent[-WINDOW_BATCHES - 1]))
                    assert answer.outcome is Outcome.GAP, answer
        states = sum(len(partition.state.producers) for partition in self.log.state.partitions.all())
        assert self.log.state.partitions.producer_count == states == len(windows)

    def of(self, entry: BatchAppended) -> PartitionLog | None:
        """The partition that a batch was sent to, if it is still there."""
        topic = self.log.state.catalog.numbered(entry.number)
        return self.log.state.partitions.at(topic.number, entry.partition) if topic is not None else None

    def topic(self, number: int) -> Topic:
        topic = self.log.state.catalog.numbered(number)
        assert topic is not None
        return topic


REFUSED = object()


def check_tidy(files: Files, log: Log) -> None:
    """Nothing lies about that nothing knows: to be asked after a checkpoint."""
    known = {path for partition in log.state.partitions.all() for path in partition.paths}
    for topic_name in files.names("topics"):
        partition_names = files.names(f"topics/{topic_name}")
        assert partition_names, f"topics/{topic_name} is empty"
        for partition_name in partition_names:
            names = files.names(f"topics/{topic_name}/{partition_name}")
            assert names, f"topics/{topic_name}/{partition_name} is empty"
            paths = {f"topics/{topic_name}/{partition_name}/{name}" for name in names}
            assert paths <= known
    numbered = [name for name in files.names("journal") if not name.startswith("spare-")]
    assert len(numbered) == 1, numbered
    names = {"checkpoint", "reserve", "journal", "topics", "lock", producer_pages.DIRECTORY}
    assert set(files.names("")) <= names | {end_notes.NAME, aside.DIRECTORY}
    # Pages that have changed since the checkpoint have no place yet, so the checkpoint itself says which are needed.
    last = checkpoint.read(files)
    assert last is not None
    needed = checkpoint.unpack(last[0]["partitions"], last[1], files)
    pages = [page for _, parts in needed for page in parts.producers.pages]
    assert not ProducerPages(files).unneeded(pages)
