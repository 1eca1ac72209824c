"""Fetch (1), versions 4 to 18: returns the records of partitions.

The handler reads whole batches, as far as consumers may read, into one answer of bounded size. If they have less than
the client's minimum of bytes, the request is parked until records arrive or its wait time is over; nothing polls. If
records are not in the page cache, a thread reads them from the disk first, and if they are only in a store, they are
fetched from there: so one consumer that is far behind does not hold up all others. Requests name a topic by its name up
to version 12 and by its id from version 13 on, so that a client notices a topic that was deleted and recreated.

A consumer with read_committed gets all records up to the last stable offset, and the list of the aborted transactions
among them: the client itself leaves out their records.
"""

from typing import Final

from semel.log.broker.apis.harvest import (
    DISK_WAIT_MS,
    Harvest,
    Patience,
    WaitingFetch,
    gather,
    until_of,
    wait_ms_of,
)
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.broker.sessions import FetchContext
from semel.log.core.quotas import FETCHED
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Mark
from semel.wire.errors import ErrorCode
from semel.wire.fetch import (
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
    with Harvest(broker, Patience.NOTHING) as harvest:
        yield from gather(broker, exchange, request, context.interests, harvest)
        wait_ms = wait_ms_of(broker, request.wait_ms_max, len(context.interests))
        if harvest.cold and not harvest.bytes:
            _ParkedFetch(broker, exchange, request, context, max(wait_ms, DISK_WAIT_MS)).wait(harvest)
        elif harvest.bytes >= request.bytes_min or harvest.has_error or wait_ms <= 0 or not context.interests:
            if harvest.cold:
                # Send the records of the other partitions now; those from the disk will be in memory at the next fetch.
                broker.warmer.warm(harvest.cold, lambda _: None)
            yield from _answer(exchange, context, harvest)
        else:
            _ParkedFetch(broker, exchange, request, context, wait_ms).wait(harvest)


class _ParkedFetch(WaitingFetch[tuple[Mark, int]]):
    """A fetch that waits. It knows up to where each partition was read, and how many more bytes of it count."""

    __slots__ = ("_bytes", "_context", "_request")

    def __init__(
        self, broker: Serving, exchange: Exchange, request: FetchRequest, context: FetchContext, wait_ms: int
    ) -> None:
        super().__init__(broker, exchange, wait_ms)
        self._request = request
        self._context = context
        self._bytes = 0

    def wait(self, harvest: Harvest) -> None:
        """Wait for more than this harvest, and have its cold parts brought."""
        # The bytes that the partitions had when they were read. Later growth is only counted: otherwise a client that
        # waits for many bytes would have all of them read again with each new batch.
        self._bytes = harvest.bytes
        self._watched = harvest.watched
        self.park(len(self._context.interests))
        for partition, (until, _) in list(self._watched.items()):
            # The first partitions may have grown, or been deleted, while the others were read.
            if until_of(self._request, partition) != until or self._is_gone(partition):
                self.moved(partition)
        if harvest.cold and self._watched:
            self.bring(harvest)

    def moved(self, partition: PartitionLog) -> None:
        if partition not in self._watched:
            return
        until, bytes_left = self._watched[partition]
        now = until_of(self._request, partition)
        more = min(partition.bytes_between(until, now), bytes_left)
        self._watched[partition] = now, bytes_left - more
        self._bytes += more
        has_enough = more > 0 and self._bytes >= self._request.bytes_min
        if has_enough or self._is_gone(partition):
            self._broker.wakeups.note_ready(self)

    def _is_gone(self, partition: PartitionLog) -> bool:
        return self._broker.log.state.catalog.numbered(partition.topic_number) is None

    def serve(self) -> Steps[None]:
        if (yield from _answer_over_quota(self._broker, self._exchange, self._context)):
            return
        broker = self._broker
        is_late = broker.clock.steady_ms() >= self._deadline_ms
        patience = Patience.ALL if is_late else self._patience
        with Harvest(broker, patience, self._failures) as harvest:
            yield from gather(broker, self._exchange, self._request, self._context.interests, harvest)
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


def _answer(exchange: Exchange, context: FetchContext, harvest: Harvest) -> Steps[None]:
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
