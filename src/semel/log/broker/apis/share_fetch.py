"""ShareFetch (78), versions 1 and 2: acquires records for a member of a share group, and returns them.

A request may first acknowledge records that the member acquired before. It waits like Fetch until there is something to
acquire: records that nobody has got yet, or that somebody has released. What it acquires in all of its partitions is
one entry, and the answer waits until that is durable. As in Apache Kafka the answer has whole batches, and says which
of their records the member has acquired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from semel.log.broker.apis.answers import answer_in_steps, attempted, attempted_in_steps, decoded, error_of, message_of
from semel.log.broker.apis.harvest import (
    DISK_WAIT_MS,
    READ_COMMITTED,
    Harvest,
    Patience,
    WaitingFetch,
    gather,
    wait_ms_of,
)
from semel.log.broker.apis.list_offsets import first_since
from semel.log.broker.apis.share_acknowledgements import acknowledged, by_topic, name_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP, READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.broker.sessions import Interest
from semel.log.broker.share_groups import Reading
from semel.log.broker.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Place,
    SharerName,
    ShareSession,
    check_member_id,
)
from semel.log.core.configs import duration_ms_of
from semel.log.core.entries import PartitionName, ShareBatch
from semel.log.core.groups.share_partition import LogSpan, ShareRules, Wish
from semel.log.core.quotas import FETCHED
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Mark
from semel.wire import kafka
from semel.wire.batch import Buffer, read_header
from semel.wire.errors import ErrorCode
from semel.wire.fetch import FetchPartition, FetchRequest
from semel.wire.refusals import INVALID_REQUEST, Refused
from semel.wire.steps import Steps
from semel.wire.versions import SHARE_FETCH

API: Final = Api(SHARE_FETCH, (1, 2), rights=(READ_GROUP, READ_TOPIC), standby=Here.NOT_LEADER)

# With this mode a member never gets more records than it asked for.
_STRICT: Final = 1
# Batches that one request may acquire, because all of them are acquired at once. The next request gets the others.
_HEADERS_MAX: Final = 5_000
# Headers of batches that are looked at for one piece of work.
_HEADERS_PER_PIECE: Final = 10
# Partitions that are looked at for one piece of work, and those that a session is given at once.
_PLACES_PER_PIECE: Final = 10
_PLACES_AT_ONCE: Final = 1_000


class _Read(NamedTuple):
    """The records of one partition, and where each of their batches begins and the last one ends."""

    name: PartitionName
    begin: int
    log_start: int
    records: Buffer
    spans: list[LogSpan]
    positions: list[int]

    def around(self, acquired: Sequence[ShareBatch]) -> bytes:
        """The batches from the first acquired record to the last."""
        firsts = [span.first for span in self.spans]
        begin = bisect_right(firsts, acquired[0].first) - 1
        end = bisect_right(firsts, acquired[-1].last)
        return bytes(self.records[self.positions[begin] : self.positions[end]])


class _Yield(NamedTuple):
    """What a request gets: refusals, and the records in which the member has acquired some."""

    refused: Mapping[Place, Refused]
    reads: Mapping[Place, _Read]
    acquired: Mapping[PartitionName, list[ShareBatch]]


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.share_fetch.ShareFetchRequest, body)
    fetch = _ShareFetch(broker, exchange, request)
    refused = yield from attempted_in_steps(fetch.begin())
    if isinstance(refused, Refused):
        yield from fetch.refuse(refused)
    else:
        yield from fetch.serve()


_NOTHING: Final = _Yield({}, {}, {})


class _ShareFetch(WaitingFetch[None]):
    """One request, which may wait for records."""

    __slots__ = ("_acks", "_no_space", "_request", "_session", "_who")

    _session: ShareSession
    _who: SharerName

    def __init__(self, broker: Serving, exchange: Exchange, request: kafka.share_fetch.ShareFetchRequest) -> None:
        super().__init__(broker, exchange, wait_ms_of(broker, request.max_wait_ms, 0))
        self._request = request
        self._acks: dict[Place, Refused | None] = {}
        # Why the member gets no session, once it has waited.
        self._no_space: Refused | None = None

    # -- the session, and what the request acknowledges ---------------------------------------------------------

    def begin(self) -> Steps[None]:
        """Find the session, or begin it; then do what the member says about records that it holds."""
        broker, exchange, request = self._broker, self._exchange, self._request
        if request.group_id is None:
            raise Refused(INVALID_REQUEST, "a group needs a name")
        broker.guard.check(exchange, READ_GROUP, request.group_id)
        who = self._who = SharerName(request.group_id, check_member_id(request.member_id))
        if request.is_renew_ack and any(
            (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
        ):
            raise Refused(INVALID_REQUEST, "a request that renews locks must not ask for records")
        groups, epoch = broker.share_groups, request.share_session_epoch
        places, said = yield from _named(request)
        if epoch == INITIAL_EPOCH:
            if said:
                raise Refused(INVALID_REQUEST, "a new session holds no records")
            self._session = yield from groups.begin_session(
                who, exchange.principal, exchange.connection_number, exchange.address
            )
            added = yield from attempted_in_steps(self._add(places))
            if isinstance(added, Refused):
                yield from groups.end_session(self._session)
                raise added
            return
        self._session = groups.sessions.next(who, exchange.principal, epoch)
        if epoch != FINAL_EPOCH:
            for topic in request.forgotten_topics_data:
                groups.sessions.forget(self._session, [(topic.topic_id, index) for index in topic.partitions])
                yield 1 + len(topic.partitions) // _PLACES_PER_PIECE
            yield from self._add(places)
        if said:
            self._acks = yield from acknowledged(broker, exchange, self._session, said, renews=request.is_renew_ack)

    def _add(self, places: Sequence[Place]) -> Steps[None]:
        for first in range(0, len(places), _PLACES_AT_ONCE):
            some = places[first : first + _PLACES_AT_ONCE]
            self._broker.share_groups.sessions.add(self._session, some)
            yield 1 + len(some) // _PLACES_PER_PIECE

    def refuse(self, refused: Refused) -> Steps[None]:
        """Answer with an error. As in Apache Kafka, a client that gets no session waits first, or it would ask again at
        once.
        """
        if refused.error == ErrorCode.SHARE_SESSION_LIMIT_REACHED and self._no_space is None:
            self._no_space = refused
            self.park(len(self._watched))
            return
        response = kafka.share_fetch.ShareFetchResponse(
            error_code=refused.error,
            error_message=refused.message,
            acquisition_lock_timeout_ms=0,
            responses=(),
            node_endpoints=(),
        )
        yield from answer_in_steps(self._exchange, response, after=self._broker.log.end)

    # -- acquiring ----------------------------------------------------------------------------------------------

    def serve(self) -> Steps[None]:
        """Answer with what the member acquires now, or wait until there is something."""
        refused = self._no_space or (yield from attempted_in_steps(self._serve()))
        if isinstance(refused, Refused):
            yield from self.refuse(refused)

    def _serve(self) -> Steps[None]:
        broker, request = self._broker, self._request
        if request.share_session_epoch == FINAL_EPOCH or request.is_renew_ack:
            if request.share_session_epoch == FINAL_EPOCH:
                yield from broker.share_groups.end_session(self._session)
            yield from self._answer(_NOTHING, 0)
            return
        bytes_max = self._bytes_within_quota()
        if bytes_max is None or request.max_records <= 0:
            # It gets no records; if it is over its quota, it has to wait first.
            yield from self._answer(_NOTHING, 0)
            return
        # Much may have changed while the request waited.
        broker.guard.check(self._exchange, READ_GROUP, self._who.group)
        if self._session.is_over:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session has ended")
        rules = broker.share_groups.share_rules_of(self._who.group)
        is_late = broker.clock.steady_ms() >= self._deadline_ms
        with Harvest(broker, Patience.ALL if is_late else self._patience, self._failures) as harvest:
            refused: dict[Place, Refused] = {}
            watched: dict[PartitionLog, None] = {}
            interests = yield from self._interests(rules, refused, watched)
            isolation = READ_COMMITTED if rules.committed_only else 0
            order = FetchRequest(0, request.min_bytes, bytes_max, isolation, 0, -1, [], [], "")
            yield from gather(broker, self._exchange, order, list(interests.values()), harvest)
            reads = yield from _reads(interests, harvest, refused)
            acquired = yield from attempted_in_steps(self._acquire(reads))
            if isinstance(acquired, Refused):
                refused |= dict.fromkeys(reads, acquired)
                reads, acquired = {}, {}
            now_ms = broker.clock.steady_ms()
            if harvest.cold and not harvest.bytes and not is_late:
                self._deadline_ms = max(self._deadline_ms, now_ms + DISK_WAIT_MS)
            wait_ms = wait_ms_of(broker, self._deadline_ms - now_ms, len(watched))
            if acquired or refused or self._acks or wait_ms <= 0 or not self._session.places:
                if harvest.cold and not self._is_bringing:
                    broker.warmer.warm(harvest.cold, lambda _: None)
                yield from self._answer(_Yield(refused, reads, acquired), harvest.bytes)
            else:
                self._watched = watched
                self._wait(harvest)

    def _bytes_within_quota(self) -> int | None:
        """How many bytes the member may have at once; None if it is over its quota."""
        throttle, bytes_max = self._broker.throttle, self._request.max_bytes
        if FETCHED not in throttle.keys:
            return bytes_max
        if throttle.has_to_wait_ms(self._exchange, FETCHED):
            return None
        amount_max = throttle.amount_max(self._exchange, FETCHED)
        return bytes_max if amount_max is None else min(bytes_max, int(amount_max))

    def _interests(
        self, rules: ShareRules, refused: dict[Place, Refused], watched: dict[PartitionLog, None]
    ) -> Steps[dict[PartitionName, Interest]]:
        """The partitions in which the member could acquire something, with the first offset to read, and all of those
        that are `watched`. Those that nobody has used yet begin.
        """
        broker, starts, names = self._broker, [], {}
        machine = broker.share_groups.existing(self._who.group)
        for place in self._session.in_turn(self._request.share_session_epoch):
            name = attempted(name_of, broker, self._exchange, place)
            if not isinstance(name, Refused) and machine.partition(name) is None:
                start = yield from attempted_in_steps(self._start_of(name, rules))
                if isinstance(start, Refused):
                    name = start
                else:
                    starts.append((name, start))
            if isinstance(name, Refused):
                refused[place] = name
            else:
                names[place] = name
            yield 1
        yield from broker.share_groups.begin_partitions(self._who.group, starts)
        interests: dict[PartitionName, Interest] = {}
        for place, name in names.items():
            partition, of_log = machine.partition(name), broker.log.state.partitions.at(*name)
            if partition is not None and of_log is not None:
                watched[of_log] = None
                offset = partition.next_offset(of_log.state.log_start, rules)
                if offset is not None and offset < _until(rules, of_log).offset:
                    item = FetchPartition(place[1], offset, self._request.max_bytes, -1, -1)
                    interests[name] = Interest(place[0], item)
            yield 1
        return interests

    def _start_of(self, name: PartitionName, rules: ShareRules) -> Steps[int]:
        partition = self._broker.log.state.partitions.named(*name)
        log_start = partition.state.log_start
        if rules.reset == "earliest":
            return log_start
        latest = max(partition.readable.offset, log_start)
        ago_ms = duration_ms_of(rules.reset)
        if ago_ms is None:
            return latest
        since_ms = max(self._broker.clock.now_ms() - ago_ms, 0)
        place = yield from first_since(self._broker, partition, since_ms, False)
        return place.offset if place.offset >= 0 else latest

    def _acquire(self, reads: Mapping[Place, _Read]) -> Steps[dict[PartitionName, list[ShareBatch]]]:
        request = self._request
        wish = Wish(request.max_records, request.share_acquire_mode == _STRICT, request.batch_size)
        readings = [Reading(read.name, read.begin, read.log_start, read.spans) for read in reads.values()]
        return (yield from self._broker.share_groups.acquire(self._session, readings, wish))

    # -- waiting ------------------------------------------------------------------------------------------------

    def _wait(self, harvest: Harvest) -> None:
        self.park(len(self._watched))
        if harvest.cold:
            self.bring(harvest)
        else:
            # What came while the partitions were read has told nobody.
            for partition in list(self._watched):
                self.moved(partition)

    def moved(self, partition: PartitionLog) -> None:
        if partition not in self._watched or self._is_bringing:
            return
        rules = self._broker.share_groups.share_rules_of(self._who.group)
        known = attempted(self._broker.share_groups.existing, self._who.group)
        of_group = None if isinstance(known, Refused) else known.partition(partition.name)
        offset = None if of_group is None else of_group.next_offset(partition.state.log_start, rules)
        if of_group is None or (offset is not None and offset < _until(rules, partition).offset):
            self._broker.wakeups.note_ready(self)

    # -- answering ----------------------------------------------------------------------------------------------

    def _answer(self, given: _Yield, size: int) -> Steps[None]:
        api, broker = kafka.share_fetch, self._broker
        topics = []
        gave = [place for place, read in given.reads.items() if given.acquired.get(read.name)]
        for topic_id, indexes in (yield from by_topic(dict.fromkeys([*self._acks, *given.refused, *gave]))).items():
            partitions = []
            for index in indexes:
                place = topic_id, index
                read, refused, of_acks = given.reads.get(place), given.refused.get(place), self._acks.get(place)
                acquired = [] if read is None else given.acquired.get(read.name, [])
                partitions.append(
                    api.PartitionData(
                        partition_index=index,
                        error_code=error_of(refused),
                        error_message=message_of(refused),
                        acknowledge_error_code=error_of(of_acks),
                        acknowledge_error_message=message_of(of_acks),
                        current_leader=api.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
                        records=read.around(acquired) if read is not None and acquired else b"",
                        acquired_records=[
                            api.AcquiredRecords(
                                first_offset=batch.first, last_offset=batch.last, delivery_count=batch.deliveries
                            )
                            for batch in acquired
                        ],
                    )
                )
                yield 2 + len(acquired)
            topics.append(api.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions))
        response = api.ShareFetchResponse(
            throttle_time_ms=self._exchange.throttle(FETCHED, size),
            acquisition_lock_timeout_ms=broker.share_groups.share_rules_of(self._who.group).lock_ms,
            responses=topics,
            node_endpoints=(),
        )
        yield from answer_in_steps(self._exchange, response, after=broker.log.end)


def _until(rules: ShareRules, partition: PartitionLog) -> Mark:
    """Up to where this group may read."""
    return partition.stable if rules.committed_only else partition.readable


def _named(
    request: kafka.share_fetch.ShareFetchRequest,
) -> Steps[tuple[list[Place], list[kafka.share_fetch.FetchTopic]]]:
    """The partitions that a request names, and the topics in which it acknowledges records."""
    places: list[Place] = []
    said = []
    for topic in request.topics:
        has_acks = False
        for partition in topic.partitions:
            places.append((topic.topic_id, partition.partition_index))
            has_acks = has_acks or bool(partition.acknowledgement_batches)
            if len(places) % _PLACES_PER_PIECE == 0:
                yield 1
        if has_acks:
            said.append(topic)
    return places, said


def _reads(
    names: Iterable[PartitionName], harvest: Harvest, refused: dict[Place, Refused]
) -> Steps[dict[Place, _Read]]:
    """The records that were read, and the batches in them."""
    reads: dict[Place, _Read] = {}
    headers_left = _HEADERS_MAX
    for name, (interest, answer) in zip(names, harvest.answers, strict=True):
        assert isinstance(interest.topic, bytes)
        place = interest.topic, interest.partition.partition
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            refused[place] = Refused(answer.error_code, "the records cannot be read")
        if answer.error_code or not answer.records:
            continue
        [records] = answer.records
        aborted = deque(sorted(answer.aborted_transactions or (), key=itemgetter(1)))
        open_now: set[int] = set()
        spans: list[LogSpan] = []
        positions = [0]
        while positions[-1] < len(records) and headers_left > 0:
            headers_left -= 1
            header = read_header(records, positions[-1])
            last = header.next_offset - 1
            while aborted and aborted[0][1] <= last:
                open_now.add(aborted.popleft()[0])
            is_aborted = header.is_transactional and header.producer_id in open_now
            if header.is_control:
                open_now.discard(header.producer_id)
            spans.append(LogSpan(header.base_offset, last, not (header.is_control or is_aborted)))
            positions.append(positions[-1] + header.batch_bytes)
            if len(spans) % _HEADERS_PER_PIECE == 0:
                yield 1
        begin = interest.partition.fetch_offset
        reads[place] = _Read(name, begin, answer.log_start_offset, records, spans, positions)
    return reads
