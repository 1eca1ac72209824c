"""Sessions of incremental fetches (KIP-227): the broker remembers which partitions a consumer reads.

Without a session a consumer of a thousand partitions lists all of them in every fetch, and every answer has all of
them. In a session the consumer lists them once; later requests name only changes, and answers have only the partitions
with records, with an error, or with a high watermark or log start that is new to the consumer.

A session belongs to the principal that began it; to any other there is no session of this number. The rights to its
topics are asked for at each fetch.

Every request of a session has the next epoch. By the epoch the broker notices a request that was lost or sent twice;
the consumer gets an error and starts a new session. The number of sessions is bounded: if it is reached, a new session
replaces the one that was unused for the longest time, but only if that time is long enough; otherwise the new consumer
gets no session.
"""

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from semel.log.core.access import ANONYMOUS, Principal
from semel.wire.errors import ErrorCode
from semel.wire.fetch import FetchPartition, FetchRequest

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_LAST: Final = 2**31 - 1
# A session that was used within this time is not replaced.
KEPT_MS: Final = 120_000
# No topic has a longer name. Without this limit a client could fill a session with megabytes of unknown names.
NAME_CHARACTERS_MAX: Final = 249

# A request names a topic by its name or, in newer versions, by its id.
TopicKey = str | bytes


class Interest:
    """One partition of a session, with the offsets in the last answer about it."""

    __slots__ = ("marks", "name", "partition", "topic")

    def __init__(self, topic: TopicKey, partition: FetchPartition) -> None:
        self.topic = topic
        self.partition = partition
        # The topic's name when it last existed, for a session that knows the topic by its id.
        self.name: str | None = None
        # High watermark and log start; None before the first answer and after an error.
        self.marks: tuple[int, int] | None = None


class FetchSession:
    """The partitions of one consumer, in the order in which the next fetch serves them."""

    __slots__ = ("by_id", "epoch", "interests", "owner", "session_id", "used_at_ms")

    def __init__(self, session_id: int, by_id: bool, now_ms: int, owner: Principal) -> None:
        self.session_id = session_id
        self.owner = owner
        self.by_id = by_id
        self.epoch = 1
        self.used_at_ms = now_ms
        self.interests: dict[tuple[TopicKey, int], Interest] = {}

    def serve_last(self, interest: Interest) -> None:
        """Move a partition whose records were sent to the end, so that the others come first next time."""
        key = (interest.topic, interest.partition.partition)
        if self.interests.pop(key, None) is not None:
            self.interests[key] = interest


class FetchContext(NamedTuple):
    """The meaning of one request: the partitions to fetch, and their session, if any."""

    error: int
    session: FetchSession | None
    interests: list[Interest]
    # Whether the answer leaves out partitions without news.
    is_incremental: bool


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, sessions_max: int, partitions_max: int) -> None:
        """`partitions_max` is for all sessions together, to bound their memory."""
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        # The least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self, request: FetchRequest, by_id: bool, now_ms: int, principal: Principal = ANONYMOUS
    ) -> FetchContext:
        """Update the session of a request, and return the partitions that it asks for."""
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner != principal:
            session = None
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                self.end(session.session_id)
            interests = _listed(request)
            if request.session_epoch == FINAL_EPOCH or not interests:
                return FetchContext(0, None, interests, False)
            return FetchContext(0, self._begin(interests, by_id, now_ms, principal), interests, False)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, [], False)
        if session.epoch != request.session_epoch:
            return FetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH, None, [], False)
        if session.by_id != by_id:
            return FetchContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, None, [], False)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_LAST else 1
        session.used_at_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        if not self._update(session, request):
            # The consumer ends its session, and goes on without one.
            self.end(session.session_id)
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, [], False)
        return FetchContext(0, session, list(session.interests.values()), True)

    def _begin(self, interests: list[Interest], by_id: bool, now_ms: int, principal: Principal) -> FetchSession | None:
        if len(self._sessions) >= self._sessions_max:
            longest_unused = next(iter(self._sessions.values()))
            if now_ms - longest_unused.used_at_ms < KEPT_MS:
                return None
            self.end(longest_unused.session_id)
        if self._partition_count + len(interests) > self._partitions_max:
            return None
        if not all(map(_is_kept, interests)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = secrets.randbelow(EPOCH_LAST) + 1
        session = FetchSession(session_id, by_id, now_ms, principal)
        session.interests = {(i.topic, i.partition.partition): i for i in interests}
        self._sessions[session_id] = session
        self._partition_count += len(session.interests)
        return session

    def end(self, session_id: int) -> None:
        """Forget a session, if there is one of this number."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.interests)

    def _update(self, session: FetchSession, request: FetchRequest) -> bool:
        """Update a session; False if all sessions together would then have too many partitions."""
        interests = session.interests
        self._partition_count -= len(interests)
        for name, topic_id, indexes in request.forgotten:
            for index in indexes:
                interests.pop((_key(name, topic_id), index), None)
        is_kept = True
        for interest in _listed(request):
            interest_before = interests.get((interest.topic, interest.partition.partition))
            if interest_before is not None:
                interest_before.partition = interest.partition
            elif self._partition_count + len(interests) < self._partitions_max and _is_kept(interest):
                interests[interest.topic, interest.partition.partition] = interest
            else:
                is_kept = False
        self._partition_count += len(interests)
        return is_kept


def _listed(request: FetchRequest) -> list[Interest]:
    return [
        Interest(_key(topic.name, topic.topic_id), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _key(name: str | None, topic_id: bytes | None) -> TopicKey:
    if topic_id is not None:
        return topic_id
    return name or ""


def _is_kept(interest: Interest) -> bool:
    return len(interest.topic) <= NAME_CHARACTERS_MAX
