"""The whole log against the ledger: whatever is done to it in whatever order, it holds what the ledger says.

One machine, on three disks: one in memory, a real one, and one that loses what was not synced whenever it can.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ledger import Caller, Ledger, batch, check_tidy
from log_contents import content_of
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.files import DiskFiles, Files, MemoryFiles
from semel.log.storage.partition_log import PartitionLog
from semel.testing.faulty import FaultyFiles
from semel.wire.batch import read_header
from semel.wire.refusals import Refused
from semel.wire.sequences import WINDOW_BATCHES, Outcome
from semel.wire.steps import finish

FOREIGN_PRODUCER = 5_000_000
NAMES = st.sampled_from(["orders", "payments"])
TRANSACTIONAL_IDS = st.sampled_from(["one", "two", "three"])
CONFIGS = st.fixed_dictionaries(
    {"segment_bytes": st.sampled_from(["1024", "4096"])},
    optional={
        "retention_ms": st.sampled_from(["-1", "50000"]),
        "retention_bytes": st.sampled_from(["1000", "3000"]),
        "segment_ms": st.just("20000"),
        "message_timestamp_type": st.just("LogAppendTime"),
    },
)


class LogMachine(RuleBasedStateMachine):
    """A log in memory, its ledger, and everything a caller may do to it."""

    @initialize()
    def begin(self) -> None:
        self.files: Files = self.made()
        self.caller = Caller(self.files, Ledger())
        self.producers = [-1, FOREIGN_PRODUCER]
        self.job: CheckpointJob | None = None
        self.caller.create("orders", 2, segment_bytes="1024")

    def made(self) -> Files:
        return MemoryFiles()

    def start_again(self, files: Files) -> None:
        """A start on what is left, which must be what the ledger says, and known to be repeated where it is."""
        now_ms, ledger = self.caller.now_ms, self.caller.ledger
        self.files = files
        self.job = None
        self.caller = Caller(files, ledger)
        self.caller.now_ms = now_ms
        ledger.settle_on(self.caller.log)
        self.caller.check_windows()
        check_tidy(files, self.caller.log)

    def partition(self, draw: int) -> PartitionLog | None:
        partitions = self.caller.log.state.partitions.all()
        return partitions[draw % len(partitions)] if partitions else None

    def sent(self, partition: PartitionLog, producer_id: int) -> list[bytes]:
        ledger = self.caller.ledger
        key = (partition.topic_number, partition.index, producer_id)
        return ledger.windows(len(ledger.changes)).get(key, [])

    # What changes the log

    @rule(name=NAMES, partitions=st.integers(1, 3), configs=CONFIGS)
    def create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        if self.caller.log.state.catalog.named(name) is None:
            self.caller.create(name, partitions, **configs)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.caller.delete(name)

    @rule(name=NAMES)
    def add_partitions(self, name: str) -> None:
        topic = self.caller.log.state.catalog.named(name)
        if topic is not None and topic.partition_count < 4:
            self.caller.commit(self.caller.log.state.catalog.decide_partitions(name, topic.partition_count + 1))

    @rule()
    def new_producer(self) -> None:
        self.producers.append(self.caller.producer_id())

    @rule(
        draw=st.integers(0, 11),
        producer=st.integers(0, 5),
        sizes=st.lists(st.sampled_from([70, 150, 700, 1300, 6000]), min_size=1, max_size=4),
        records=st.integers(1, 3),
    )
    def append(self, draw: int, producer: int, sizes: list[int], records: int) -> None:
        partition = self.partition(draw)
        producer_id = self.producers[producer % len(self.producers)]
        for size in sizes if partition is not None else ():
            assert partition is not None
            offset = partition.state.next_offset
            appended = self.caller.append(partition, self.caller.next_batch(partition, producer_id, records, size))
            assert appended is not None
            assert (appended.outcome, appended.base_offset) == (Outcome.ACCEPTED, offset)

    @rule(transactional_id=TRANSACTIONAL_IDS)
    def claim(self, transactional_id: str) -> None:
        producer_id = self.caller.claim(transactional_id)
        # Its owner knows of it because it is durable.
        self.caller.sync()
        if producer_id not in self.producers:
            self.producers.append(producer_id)

    @rule(transactional_id=TRANSACTIONAL_IDS, committed=st.booleans(), raises_epoch=st.booleans())
    def end(self, transactional_id: str, committed: bool, raises_epoch: bool) -> None:
        self.caller.end(transactional_id, committed, raises_epoch=raises_epoch)

    @rule(
        group=st.sampled_from(["readers", "writers"]),
        draw=st.integers(0, 11),
        offset=st.integers(0, 1000),
        transactional_id=st.one_of(st.just(""), TRANSACTIONAL_IDS),
    )
    def move(self, group: str, draw: int, offset: int, transactional_id: str) -> None:
        partition = self.partition(draw)
        if partition is not None:
            self.caller.commit_offset(group, partition, offset, transactional_id)

    @rule(draw=st.integers(0, 11), producer=st.integers(1, 5))
    def append_in_a_later_epoch(self, draw: int, producer: int) -> None:
        partition = self.partition(draw)
        producer_id = self.producers[producer % len(self.producers)]
        is_owner = any(owner.producer_id == producer_id for owner in self.caller.owners())
        if partition is None or producer_id < 0 or is_owner:
            return
        sent = self.sent(partition, producer_id)
        epoch = read_header(sent[-1]).producer_epoch if sent else 0
        for later in (epoch + 1, epoch):
            appended = self.caller.append(partition, batch(producer_id, 0, epoch=later))
            assert appended is not None
            assert appended.outcome is (Outcome.ACCEPTED if later > epoch else Outcome.FENCED)

    @rule(draw=st.integers(0, 11), producer=st.integers(1, 5), back=st.integers(1, 7))
    def resend(self, draw: int, producer: int, back: int) -> None:
        partition = self.partition(draw)
        if partition is None:
            return
        sent = self.sent(partition, self.producers[producer % len(self.producers)])
        if back > len(sent):
            return
        try:
            answer = self.caller.append(partition, bytearray(sent[-back]))
        except Refused:
            # It is so old that it is no repetition any more, and its transaction is over.
            assert back > WINDOW_BATCHES
            assert read_header(sent[-back]).is_transactional
            return
        assert answer is not None
        if back <= WINDOW_BATCHES:
            expected = (Outcome.DUPLICATE, read_header(sent[-back]).base_offset)
            assert (answer.outcome, answer.base_offset) == expected
        else:
            assert answer.outcome is Outcome.GAP

    @rule(draw=st.integers(0, 11), producer=st.integers(1, 5))
    def leave_a_gap(self, draw: int, producer: int) -> None:
        partition = self.partition(draw)
        producer_id = self.producers[producer % len(self.producers)]
        if partition is None or not self.sent(partition, producer_id):
            return
        late = read_header(self.caller.next_batch(partition, producer_id))
        sequence = late.base_sequence + 1
        answer = self.caller.append(partition, batch(producer_id, sequence, epoch=late.producer_epoch))
        assert answer is not None
        assert answer.outcome is Outcome.GAP

    @rule(draw=st.integers(0, 11), share=st.floats(0, 1))
    def delete_records(self, draw: int, share: float) -> None:
        partition = self.partition(draw)
        if partition is not None:
            self.caller.delete_records(partition, int(partition.readable.offset * share))

    @rule(draw=st.integers(0, 11))
    def delete_all_records(self, draw: int) -> None:
        partition = self.partition(draw)
        if partition is not None:
            self.caller.delete_records(partition)

    @rule(passed_ms=st.sampled_from([0, 10_000, 60_000]))
    def retain(self, passed_ms: int) -> None:
        self.caller.now_ms += passed_ms
        self.caller.retain()

    @rule()
    def sync(self) -> None:
        self.caller.sync()
        assert content_of(self.caller.log) == self.caller.ledger.content(len(self.caller.ledger.changes))

    @precondition(lambda self: self.job is None)
    @rule()
    def begin_checkpoint(self) -> None:
        self.job = finish(self.caller.log.begin_checkpoint())

    @precondition(lambda self: self.job is not None)
    @rule()
    def end_checkpoint(self) -> None:
        job, self.job = self.job, None
        assert job is not None
        assert self.caller.end_checkpoint(job)

    @precondition(lambda self: self.job is not None)
    @rule()
    def fail_checkpoint(self) -> None:
        job, self.job = self.job, None
        assert job is not None
        self.caller.log.fail_checkpoint(job)

    # What looks at it

    @rule(draw=st.integers(0, 11), at=st.floats(0, 1), bytes_max=st.integers(0, 3000), whole=st.booleans())
    def read(self, draw: int, at: float, bytes_max: int, whole: bool) -> None:
        partition = self.partition(draw)
        if partition is None:
            return
        until = partition.readable
        log_start = partition.state.log_start
        offset = log_start + int((until.offset - log_start) * at)
        data, behind = partition.read(offset, bytes_max, until, whole_first_batch=whole)
        contents = self.caller.ledger.content(len(self.caller.ledger.changes))
        held = contents.topics[partition.topic_number].partitions[partition.index].batches
        wanted = [stored for stored in held if offset < read_header(stored).next_offset <= until.offset]
        if offset < until.offset and (whole or bytes_max >= len(wanted[0])):
            assert data, "a batch that can be read was not"
        count = 0
        while count < len(wanted) and len(b"".join(wanted[:count])) < len(data):
            count += 1
        assert bytes(data) == b"".join(wanted[:count]), "not whole batches from the one that holds the offset on"
        assert behind == (read_header(wanted[count - 1]).next_offset if count else offset)
        assert len(data) <= bytes_max or (whole and count == 1)

    # How it ends

    @rule()
    def stop_and_start(self) -> None:
        if self.job is not None:
            self.end_checkpoint()
        self.caller.close()
        self.start_again(self.files)
        assert self.caller.log.replayed_bytes == 0

    @rule()
    def die_and_start(self) -> None:
        self.caller.log.abandon()
        self.start_again(self.files)

    def teardown(self) -> None:
        if hasattr(self, "caller"):
            self.stop_and_start()
            self.caller.log.abandon()


class LogOnDiskMachine(LogMachine):
    """The same on a real disk."""

    def made(self) -> Files:
        self.root = Path(tempfile.mkdtemp(prefix="semel-test-"))
        return DiskFiles(self.root)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root, ignore_errors=True)


class LogOnFaultyDiskMachine(LogMachine):
    """The same on a disk that a loss of power leaves with any part of what was not synced."""

    def made(self) -> Files:
        return FaultyFiles()

    @rule(seed=st.integers(0, 2**32))
    def lose_power_and_start(self, seed: int) -> None:
        files: Any = self.files
        self.start_again(files.survivors(seed))


TestLogInMemory = LogMachine.TestCase
TestLogInMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogOnDisk = LogOnDiskMachine.TestCase
TestLogOnDisk.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
TestLogOnFaultyDisk = LogOnFaultyDiskMachine.TestCase
TestLogOnFaultyDisk.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
