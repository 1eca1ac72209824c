"""Fetch (1), versions 4 to 18: returns the records of partitions.

The handler reads whole batches, as far as consumers may read, into one answer of bounded size. If they have less than
the client's minimum of bytes, the request is parked until records arrive or its wait time is over; nothing polls. If
records are not in the page cache, a thread reads them from the disk first, and if they are only in a store, they are
fetched from there: so one consumer that is far behind does not hold up all others. Requests name a topic by its name up
to version 12 and by its id from version 13 on, so that a client notices a topic that was deleted and recreated.

A consumer with read_committed gets all records up to the last stable offset, and the list of the aborted transactions
among them: the client itself leaves out their records.
"""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving, serve_on
from semel.log.broker.sessions import FetchContext, Interest
from semel.log.core.quotas import FETCHED
from semel.log.core.topics import Topic
from semel.log.replica.cache import NO_FAILURES, Failures, Unreadable
from semel.log.storage.files import NotHere
from semel.log.storage.journal import Damaged
from semel.log.storage.partition_log import PartitionLog, Watcher
from semel.log.storage.segment import Mark, Stretch
from semel.wire.errors import ErrorCode
from semel.wire.fetch import (
    ABORTED,
    FetchPartitionAnswer,
    FetchRequest,
    FetchTopicAnswer,
    decode_request_in_steps,
    encode_response_in_steps,
)
from semel.wire.steps import Steps
from semel.wire.versions import FETCH

API: Final = Api(FETCH, (4, 18), rights=(READ_TOPIC,), standby=Here.NOT_LEADER)

_TOPIC_IDS_FROM = 13
# The epoch that a client sends if it does not know the leader's.
_NO_EPOCH = -1
_READ_COMMITTED = 1
# Reading this many bytes counts as one piece of work, besides the work for each partition.
_BYTES_PER_PIECE = 16_384
# Finding this many aborted transactions counts as one piece of work.
_ABORTED_PER_PIECE = 20
# The most parts of files that one fetch gets from the store; each may be far larger than the records that are sent from
# it. The next fetch gets the parts of other partitions.
_ABSENT_MAX = 4
# The time that even a client with a wait time of 0 waits until existing records are read from the disk.
_DISK_WAIT_MS = 1_000


class _Patience(IntEnum):
    """What a fetch may read from the disk while all others wait; the rest has to be brought into memory before."""

    NOTHING = 0
    INDEXES = 1
    ALL = 2


class _Harvest:
    """The records that the partitions of a request have at one moment. Its bytes count as unsent while it exists,
    because many fetches may collect records at the same time.
    """

    __slots__ = (
        *("_broker", "absent", "answers", "bytes", "cold", "cold_bytes"),
        *("cold_index", "failures", "has_error", "patience", "watched"),
    )

    def __init__(self, broker: Serving, patience: _Patience, failures: Failures = NO_FAILURES) -> None:
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

    def __enter__(self) -> "_Harvest":
        return self

    def __exit__(self, *broke_off: object) -> None:
        self._broker.unsent_bytes -= self.bytes

    def note_cold(self, stretch: Stretch) -> None:
        """This part of a file is not in memory."""
        self.cold.append(stretch)
        self.cold_bytes += stretch.size

    @property
    def next_patience(self) -> _Patience:
        """The patience when the cold parts have been brought. It grows each time, so that a machine with too little
        memory does not bring them again and again.
        """
        return _Patience.INDEXES if self.cold_index else _Patience.ALL

    def note_absent(self, absent: NotHere) -> None:
        """These records are only in the store."""
        if self.absent < _ABSENT_MAX:
            self.absent += 1
            self.note_cold(Stretch(absent.path, absent.position, absent.size))

    def note_read(self, size: int) -> None:
        self.bytes += size
        self._broker.unsent_bytes += size


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decode_request_in_steps(body, exchange.version)
    by_id, now_ms = exchange.version >= _TOPIC_IDS_FROM, broker.clock.steady_ms()
    context = broker.fetch_sessions.resolve(request, by_id, now_ms, exchange.principal)
    if context.error:
        exchange.reply(
            (yield from encode_response_in_steps(exchange.version, exchange.correlation_id, context.error, 0, []))
        )
        return
    if FETCHED in broker.throttle.keys:
        if (yield from _answer_over_quota(broker, exchange, context)):
            return
        request = _within_quota(broker, exchange, request)
    with _Harvest(broker, _Patience.NOTHING) as harvest:
        yield from _gather(broker, exchange, request, context, harvest)
        wait_ms = min(request.wait_ms_max, broker.limits.fetch_wait_ms_max)
        if broker.waiting_partitions + len(context.interests) > broker.limits.waiting_partitions_max:
            # A fetch that waits takes memory, so beyond the limit it is answered at once.
            wait_ms = 0
        if harvest.cold and not harvest.bytes:
            _ParkedFetch(broker, exchange, request, context, max(wait_ms, _DISK_WAIT_MS)).wait(harvest)
        elif harvest.bytes >= request.bytes_min or harvest.has_error or wait_ms <= 0 or not context.interests:
            if harvest.cold:
                # Send the records of the other partitions now; those from the disk will be in memory at the next fetch.
                broker.warmer.warm(harvest.cold, lambda _: None)
            yield from _answer(exchange, context, harvest)
        else:
            _ParkedFetch(broker, exchange, request, context, wait_ms).wait(harvest)


class _ParkedFetch(Watcher):
    """A fetch that waits for records, or for the end of its wait time.

    While a thread brings records for it, new records of other partitions may end the wait. It is served then with the
    patience that it had before: only the thread's word allows it to read what was cold.
    """

    __slots__ = (
        *("_broker", "_bytes", "_context", "_deadline_ms", "_exchange", "_failures", "_is_bringing"),
        *("_next_patience", "_patience", "_request", "_timer", "_watched"),
    )

    _timer: asyncio.Handle

    def __init__(
        self, broker: Serving, exchange: Exchange, request: FetchRequest, context: FetchContext, wait_ms: int
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._context = context
        self._bytes = 0
        self._watched: dict[PartitionLog, tuple[Mark, int]] = {}
        self._patience = self._next_patience = _Patience.NOTHING
        # Whether the thread has not yet brought all that it was asked for.
        self._is_bringing = False
        self._failures = NO_FAILURES
        self._deadline_ms = broker.clock.steady_ms() + wait_ms

    def wait(self, harvest: _Harvest) -> None:
        """Wait for more than this harvest, and have its cold parts brought."""
        broker, loop = self._broker, asyncio.get_running_loop()
        # The bytes that the partitions had when they were read. Later growth is only counted: otherwise a client that
        # waits for many bytes would have all of them read again with each new batch.
        self._bytes = harvest.bytes
        self._watched = harvest.watched
        wait_ms = max(self._deadline_ms - broker.clock.steady_ms(), 0)
        self._timer = loop.call_later(wait_ms / 1000, self._broker.wakeups.note_ready, self)
        for partition in self._watched:
            partition.watchers[self] = None
        broker.waiting_partitions += len(self._context.interests)
        self._exchange.park(self)
        for partition, (until, _) in list(self._watched.items()):
            # The first partitions may have grown, or been deleted, while the others were read.
            if _until(self._request, partition) != until or self._is_gone(partition):
                self.moved(partition)
        if harvest.cold and self._watched:
            self._bring(harvest)

    def _bring(self, harvest: _Harvest) -> None:
        if self._patience > harvest.patience:
            # All that the thread was asked for has come while the partitions were read.
            self._broker.wakeups.note_ready(self)
        elif not self._is_bringing:
            self._is_bringing = True
            self._next_patience = harvest.next_patience
            self._broker.warmer.warm(harvest.cold, self.warmed)

    def moved(self, partition: PartitionLog) -> None:
        if partition not in self._watched:
            return
        until, bytes_left = self._watched[partition]
        now = _until(self._request, partition)
        more = min(partition.bytes_between(until, now), bytes_left)
        self._watched[partition] = now, bytes_left - more
        self._bytes += more
        has_enough = more > 0 and self._bytes >= self._request.bytes_min
        if has_enough or self._is_gone(partition):
            self._broker.wakeups.note_ready(self)

    def _is_gone(self, partition: PartitionLog) -> bool:
        return self._broker.log.state.catalog.numbered(partition.topic_number) is None

    def warmed(self, failures: Failures) -> None:
        """The records are in the page cache now, or cannot come."""
        self._is_bringing = False
        self._patience, self._failures = self._next_patience, failures
        if self._watched:
            self.finish()

    def finish(self) -> None:
        self._leave()
        serve_on(self._broker, self._exchange, self._serve())

    def _serve(self) -> Steps[None]:
        if (yield from _answer_over_quota(self._broker, self._exchange, self._context)):
            return
        broker = self._broker
        is_late = broker.clock.steady_ms() >= self._deadline_ms
        patience = _Patience.ALL if is_late else self._patience
        with _Harvest(broker, patience, self._failures) as harvest:
            yield from _gather(broker, self._exchange, self._request, self._context, harvest)
            wait_ms = self._deadline_ms - broker.clock.steady_ms()
            if harvest.cold and not harvest.bytes and not harvest.has_error and wait_ms > 0:
                # It waits again for the records that an index has named; or with a store, for another part of a file,
                # or because the part that had come was freed to make space; or the thread has not brought them yet.
                self.wait(harvest)
            else:
                if harvest.cold and not self._is_bringing:
                    # As in `handle`: those from the disk will be in memory at the next fetch.
                    broker.warmer.warm(harvest.cold, lambda _: None)
                yield from _answer(self._exchange, self._context, harvest)

    def give_up(self) -> None:
        self._leave()

    def answer_now(self) -> None:
        self._deadline_ms = 0
        self.finish()

    def _leave(self) -> None:
        self._timer.cancel()
        self._broker.wakeups.forget(self)
        for partition in self._watched:
            partition.watchers.pop(self, None)
        self._watched = {}
        self._exchange.unpark(self)
        self._broker.waiting_partitions -= len(self._context.interests)


def _within_quota(broker: Serving, exchange: Exchange, request: FetchRequest) -> FetchRequest:
    """Limit a fetch to the bytes that the client may have in the time over which its rate is measured."""
    amount_max = broker.throttle.amount_max(exchange, FETCHED)
    if amount_max is None:
        return request
    bytes_max = min(request.bytes_max, int(amount_max))
    return request._replace(bytes_max=bytes_max, bytes_min=min(request.bytes_min, bytes_max))


def _answer_over_quota(broker: Serving, exchange: Exchange, context: FetchContext) -> Steps[bool]:
    """If the client is over its quota, answer it without records, and say how long it has to wait."""
    throttle_ms = broker.throttle.has_to_wait_ms(exchange, FETCHED)
    if not throttle_ms:
        return False
    session_id = 0
    if context.session is not None and context.is_incremental:
        session_id = context.session.session_id
    elif context.session is not None:
        # As in Apache Kafka, the client begins its session with an answer that names all of its partitions.
        broker.fetch_sessions.end(context.session.session_id)
    exchange.reply(
        (
            yield from encode_response_in_steps(
                exchange.version, exchange.correlation_id, ErrorCode.NONE, session_id, [], throttle_ms
            )
        )
    )
    return True


def _gather(
    broker: Serving, exchange: Exchange, request: FetchRequest, context: FetchContext, harvest: _Harvest
) -> Steps[None]:
    limits = broker.limits
    bytes_max = min(request.bytes_max, limits.fetch_answer_bytes_max)
    for interest in context.interests:
        bytes_left = min(bytes_max - harvest.bytes, limits.unsent_bytes_max - broker.unsent_bytes)
        # Records on the disk count too, or one request could read the whole disk.
        answer = _read(broker, exchange, interest, request, max(bytes_left - harvest.cold_bytes, 0), harvest)
        if answer.error_code:
            harvest.has_error = True
        harvest.answers.append((interest, answer))
        aborted_count = len(answer.aborted_transactions or ())
        yield 5 + sum(map(len, answer.records)) // _BYTES_PER_PIECE + aborted_count // _ABORTED_PER_PIECE


def _read(
    broker: Serving, exchange: Exchange, interest: Interest, request: FetchRequest, bytes_left: int, harvest: _Harvest
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
    committed_only = request.isolation_level == _READ_COMMITTED
    until = _until(request, partition)
    log_start = partition.state.log_start
    if not log_start <= item.fetch_offset <= partition.state.next_offset:
        return FetchPartitionAnswer(index, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, log_start)
    aborted: Sequence[tuple[int, int]] | None = () if committed_only else None
    bytes_max = min(item.bytes_max, bytes_left)
    data: bytes | memoryview = b""
    is_cold = False
    try:
        cold = None
        if harvest.patience < _Patience.INDEXES:
            cold = partition.cold_index(item.fetch_offset, bytes_max, until)
            harvest.cold_index |= cold is not None
        if cold is None and harvest.patience < _Patience.ALL:
            cold = partition.cold_stretch(item.fetch_offset, bytes_max, until)
        if cold is not None:
            is_cold = True
            harvest.note_cold(cold)
        else:
            # The answer has the first batch whatever its size, or a client with a small limit would never make
            # progress.
            first = harvest.bytes == harvest.cold_bytes == 0
            data, next_offset = partition.read(item.fetch_offset, bytes_max, until, whole_first_batch=first)
            if committed_only and data:
                may_read = harvest.patience == _Patience.ALL
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


def _failed(broker: Serving, index: int, error: Exception, log_start: int) -> FetchPartitionAnswer:
    """The answer if records cannot be read. If the store no longer has them, another broker has taken over."""
    broker.runtime.read_failed(error)
    is_gone = isinstance(error, Unreadable) and error.is_gone
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_gone else ErrorCode.KAFKA_STORAGE_ERROR
    return FetchPartitionAnswer(index, code, -1, -1, log_start)


def _until(request: FetchRequest, partition: PartitionLog) -> Mark:
    """Up to where this client may read."""
    return partition.stable if request.isolation_level == _READ_COMMITTED else partition.readable


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


def _answer(exchange: Exchange, context: FetchContext, harvest: _Harvest) -> Steps[None]:
    session = context.session
    topics: dict[str | bytes, list[FetchPartitionAnswer]] = {}
    for interest, answer in harvest.answers:
        marks = (answer.high_watermark, answer.log_start_offset)
        if context.is_incremental and not answer.records and not answer.error_code and interest.marks == marks:
            yield 1
            continue
        yield 1
        interest.marks = None if answer.error_code else marks
        topics.setdefault(interest.topic, []).append(answer)
        if session is not None and answer.records:
            session.serve_last(interest)
    answers: list[FetchTopicAnswer] = [
        (None, topic, partitions) if isinstance(topic, bytes) else (topic, None, partitions)
        for topic, partitions in topics.items()
    ]
    session_id = 0 if session is None else session.session_id
    throttle_ms = exchange.throttle(FETCHED, harvest.bytes)
    exchange.reply(
        (
            yield from encode_response_in_steps(
                exchange.version, exchange.correlation_id, ErrorCode.NONE, session_id, answers, throttle_ms
            )
        ),
        is_to_be_proved=harvest.has_error,
    )
