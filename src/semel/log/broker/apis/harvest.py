"""What Fetch and ShareFetch have in common: reading what partitions have at one moment, and waiting for more.

Whole batches are read, as far as consumers may read, within bounds. What is not in the page cache is noted and not
read, unless the caller has the patience for it; what is only in a store is never waited for here. Nothing here may
answer a request.
"""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Generic, TypeVar

from semel.log.broker.apis.lookup import refused_read
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving, serve_on
from semel.log.broker.sessions import Interest
from semel.log.core.topics import Topic
from semel.log.replica.cache import NO_FAILURES, Failures
from semel.log.storage.files import NotHere
from semel.log.storage.journal import Corrupt, Damaged
from semel.log.storage.partition_log import PartitionLog, Watcher
from semel.log.storage.segment import Mark, Stretch
from semel.wire.batch import read_header
from semel.wire.errors import ErrorCode
from semel.wire.fetch import ABORTED, FetchPartitionAnswer, FetchRequest
from semel.wire.steps import Steps

# The epoch that a client sends if it does not know the leader's.
_NO_EPOCH = -1
READ_COMMITTED = 1
# Reading this many bytes counts as one piece of work, besides the work for each partition.
_BYTES_PER_PIECE = 16_384
# Finding this many aborted transactions counts as one piece of work.
_ABORTED_PER_PIECE = 20
# The most parts of files that one fetch gets from the store; each may be far larger than the records that are sent from
# it. The next fetch gets the parts of other partitions.
_ABSENT_MAX = 4
# The time that even a client with a wait time of 0 waits until existing records are read from the disk.
DISK_WAIT_MS: Final = 1_000

W = TypeVar("W")


class Patience(IntEnum):
    """What a fetch may read from the disk while all others wait; the rest has to be brought into memory before."""

    NOTHING = 0
    INDEXES = 1
    ALL = 2


class Harvest:
    """The records that the partitions of a request have at one moment. Its bytes count as unsent while it exists,
    because many fetches may collect records at the same time.
    """

    __slots__ = (
        *("_broker", "absent", "answers", "bytes", "cold", "cold_bytes"),
        *("cold_index", "failures", "has_error", "patience", "watched"),
    )

    def __init__(self, broker: Serving, patience: Patience, failures: Failures = NO_FAILURES) -> None:
        self._broker = broker
        self.patience = patience
        # By the path of a file: why records in it cannot come from the store.
        self.failures = failures
        self.cold: list[Stretch] = []
        self.cold_bytes = 0
        # Whether an index is among the cold parts: where the records lie is not known before it is read.
        self.cold_index = False
        # How many parts of files must come from the store.
        self.absent = 0
        self.answers: list[tuple[Interest, FetchPartitionAnswer]] = []
        self.bytes = 0
        self.has_error = False
        # For each partition the offset up to which it was read, and how many more bytes it may add.
        self.watched: dict[PartitionLog, tuple[Mark, int]] = {}

    def __enter__(self) -> "Harvest":
        return self

    def __exit__(self, *broke_off: object) -> None:
        self._broker.unsent_bytes -= self.bytes

    def note_cold(self, stretch: Stretch) -> None:
        """This part of a file is not in memory."""
        self.cold.append(stretch)
        self.cold_bytes += stretch.size

    @property
    def next_patience(self) -> Patience:
        """The patience when the cold parts have been brought. It grows each time, so that a machine with too little
        memory does not bring them again and again.
        """
        return Patience.INDEXES if self.cold_index else Patience.ALL

    def note_absent(self, absent: NotHere) -> None:
        """These records are only in the store."""
        if self.absent < _ABSENT_MAX:
            self.absent += 1
            self.note_cold(Stretch(absent.path, absent.position, absent.size))

    def note_read(self, size: int) -> None:
        self.bytes += size
        self._broker.unsent_bytes += size


class WaitingFetch(Watcher, Generic[W]):
    """A fetch that may wait for records, or for the end of its wait time.

    While a thread brings records for it, new records of other partitions may end the wait. It is served then with the
    patience that it had before: only the thread's word allows it to read what was cold.
    """

    __slots__ = (
        *("_broker", "_deadline_ms", "_exchange", "_failures", "_is_bringing", "_next_patience"),
        *("_partition_count", "_patience", "_timer", "_watched"),
    )

    _timer: asyncio.Handle
    _partition_count: int

    def __init__(self, broker: Serving, exchange: Exchange, wait_ms: int) -> None:
        self._broker = broker
        self._exchange = exchange
        # What it has to know about each partition for which it waits.
        self._watched: dict[PartitionLog, W] = {}
        self._patience = self._next_patience = Patience.NOTHING
        # Whether the thread has not yet brought all that it was asked for.
        self._is_bringing = False
        self._failures = NO_FAILURES
        self._deadline_ms = broker.clock.steady_ms() + wait_ms

    def serve(self) -> Steps[None]:
        """Answer, or wait again."""
        raise NotImplementedError

    def park(self, partition_count: int) -> None:
        """Wait for the partitions that are watched, until the deadline. What a request takes while it waits are all
        partitions that it names, so these count towards the limit."""
        broker = self._broker
        wait_ms = max(self._deadline_ms - broker.clock.steady_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, broker.wakeups.note_ready, self)
        for partition in self._watched:
            partition.watchers[self] = None
        self._partition_count = partition_count
        broker.waiting_partitions += partition_count
        self._exchange.park(self)

    def bring(self, harvest: Harvest) -> None:
        """Have the cold parts of this harvest brought."""
        if self._patience > harvest.patience:
            # All that the thread was asked for has come while the partitions were read.
            self._broker.wakeups.note_ready(self)
        elif not self._is_bringing:
            self._is_bringing = True
            self._next_patience = harvest.next_patience
            self._broker.warmer.warm(harvest.cold, self.warmed)

    def warmed(self, failures: Failures) -> None:
        """The records are in the page cache now, or cannot come."""
        self._is_bringing = False
        self._patience, self._failures = self._next_patience, failures
        if self._watched:
            self.finish()

    def finish(self) -> None:
        self.give_up()
        serve_on(self._broker, self._exchange, self.serve())

    def answer_now(self) -> None:
        self._deadline_ms = 0
        self.finish()

    def give_up(self) -> None:
        """Wait no longer."""
        self._timer.cancel()
        self._broker.wakeups.forget(self)
        for partition in self._watched:
            partition.watchers.pop(self, None)
        self._broker.waiting_partitions -= self._partition_count
        self._watched = {}
        self._exchange.unpark(self)


def wait_ms_of(broker: Serving, wait_ms: int, partition_count: int) -> int:
    """How long a fetch of so many partitions may wait that asks for `wait_ms`."""
    if broker.waiting_partitions + partition_count > broker.limits.waiting_partitions_max:
        # A fetch that waits takes memory, so beyond the limit it is answered at once.
        return 0
    return min(wait_ms, broker.limits.fetch_wait_ms_max)


def gather(
    broker: Serving, exchange: Exchange, request: FetchRequest, interests: Sequence[Interest], harvest: Harvest
) -> Steps[None]:
    """Read the records of these partitions."""
    limits = broker.limits
    bytes_max = min(request.bytes_max, limits.fetch_answer_bytes_max)
    for interest in interests:
        bytes_left = min(bytes_max - harvest.bytes, limits.unsent_bytes_max - broker.unsent_bytes)
        # Records on the disk count too, or one request could read the whole disk.
        answer = _read(broker, exchange, interest, request, max(bytes_left - harvest.cold_bytes, 0), harvest)
        if answer.error_code:
            harvest.has_error = True
        harvest.answers.append((interest, answer))
        aborted_count = len(answer.aborted_transactions or ())
        yield 5 + sum(map(len, answer.records)) // _BYTES_PER_PIECE + aborted_count // _ABORTED_PER_PIECE


def _read(
    broker: Serving, exchange: Exchange, interest: Interest, request: FetchRequest, bytes_left: int, harvest: Harvest
) -> FetchPartitionAnswer:
    item = interest.partition
    index = item.partition
    topic = _topic_of(broker, interest)
    name = _name_of(interest) if topic is None else topic.name
    if name is not None and not broker.guard.allows(exchange, READ_TOPIC, name):
        return FetchPartitionAnswer(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    if topic is None:
        return FetchPartitionAnswer(index, _why_missing(broker, interest), -1)
    interest.name = topic.name
    partition = broker.log.state.partitions.at(topic.number, index)
    if partition is None:
        return FetchPartitionAnswer(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    if item.current_leader_epoch not in (broker.log.state.partitions.leader_epoch, _NO_EPOCH):
        is_ahead = item.current_leader_epoch > broker.log.state.partitions.leader_epoch
        error = ErrorCode.UNKNOWN_LEADER_EPOCH if is_ahead else ErrorCode.FENCED_LEADER_EPOCH
        return FetchPartitionAnswer(index, error, -1)
    committed_only = request.isolation_level == READ_COMMITTED
    until = until_of(request, partition)
    log_start = partition.state.log_start
    if not log_start <= item.fetch_offset <= partition.state.next_offset:
        return FetchPartitionAnswer(index, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, log_start)
    aborted: Sequence[tuple[int, int]] | None = () if committed_only else None
    bytes_max = min(item.bytes_max, bytes_left)
    data: bytes | memoryview = b""
    is_cold = False
    try:
        cold = None
        if harvest.patience < Patience.INDEXES:
            cold = partition.cold_index(item.fetch_offset, bytes_max, until)
            harvest.cold_index |= cold is not None
        if cold is None and harvest.patience < Patience.ALL:
            cold = partition.cold_stretch(item.fetch_offset, bytes_max, until)
        if cold is not None:
            is_cold = True
            harvest.note_cold(cold)
        else:
            # The answer has the first batch whatever its size, or a client with a small limit would never make
            # progress.
            first = harvest.bytes == harvest.cold_bytes == 0
            data, next_offset = partition.read(item.fetch_offset, bytes_max, until, whole_first_batch=first)
            # Without `first`, there may be a batch that the answer has no space for.
            found = read_header(data).base_offset if data else until.offset if first else item.fetch_offset
            _check_given_up(partition, item.fetch_offset, found)
            if committed_only and data:
                may_read = harvest.patience == Patience.ALL
                blocks = [] if may_read else partition.aborted.cold(item.fetch_offset, next_offset)
                if blocks:
                    # The client must not get the records without the list of aborted transactions.
                    is_cold = True
                    harvest.cold += blocks
                    harvest.cold_bytes += len(data)
                    data = b""
                else:
                    aborted = partition.aborted.between(item.fetch_offset, next_offset)
    except NotHere as absent:
        if absent.path in harvest.failures:
            return _failed(broker, index, harvest.failures[absent.path], log_start)
        harvest.note_absent(absent)
        is_cold = True
        data, aborted = b"", () if committed_only else None
    except (OSError, Damaged) as error:
        return _failed(broker, index, error, log_start)
    # The list of aborted transactions may be longer than the records.
    harvest.note_read(len(data) + ABORTED.size * len(aborted or ()))
    # What is appended behind cold records cannot be sent before them, so it does not count.
    harvest.watched[partition] = until, 0 if is_cold else max(item.bytes_max - len(data), 0)
    return FetchPartitionAnswer(
        index,
        0,
        partition.readable.offset,
        partition.last_stable_offset,
        log_start,
        aborted,
        (data,) if data else (),
    )


def _check_given_up(partition: PartitionLog, offset: int, found: int) -> None:
    """Corrupt if a repair has given up records between `offset` and the next ones that were found: a client that gets
    these would never know.
    """
    for begin, end in partition.given_up:
        if offset < end and (begin <= offset or begin < found):
            gone = f"offsets {begin} to {end - 1} were damaged, and a repair has given them up"
            raise Corrupt(f"{partition.directory}: {gone}")


def _failed(broker: Serving, index: int, error: Exception, log_start: int) -> FetchPartitionAnswer:
    """The answer if records cannot be read."""
    return FetchPartitionAnswer(index, refused_read(broker, error).error, -1, -1, log_start)


def until_of(request: FetchRequest, partition: PartitionLog) -> Mark:
    """Up to where this client may read."""
    return partition.stable if request.isolation_level == READ_COMMITTED else partition.readable


def _why_missing(broker: Serving, interest: Interest) -> ErrorCode:
    """The error for a missing topic. As in Apache Kafka, a session remembers the name of the topic with an id."""
    if not isinstance(interest.topic, bytes):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if interest.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    is_made_anew = broker.log.state.catalog.named(interest.name) is not None
    return ErrorCode.INCONSISTENT_TOPIC_ID if is_made_anew else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic_of(broker: Serving, interest: Interest) -> Topic | None:
    if isinstance(interest.topic, bytes):
        return broker.log.state.catalog.identified(interest.topic)
    return broker.log.state.catalog.named(interest.topic)


def _name_of(interest: Interest) -> str | None:
    """The name that a missing topic has or had; None if only the id is known."""
    return interest.name if isinstance(interest.topic, bytes) else interest.topic
