"""Sessions of incremental fetches (KIP-227): the broker remembers which partitions a consumer reads.

A consumer that reads a thousand partitions would list them all in every fetch and get them all in every answer. In a
session it lists them once; later requests name only what changes, and answers only hold partitions that have records,
an error, or a high watermark or log start that the consumer has not been told yet.

Every request of a session carries the next epoch. A request that was lost or sent twice is noticed by its epoch; the
consumer is told and starts a new session. Sessions are bounded: the one longest unused makes way for a new one, if it
was unused for long; otherwise the new consumer does without a session.
"""

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from semel.wire.errors import ErrorCode
from semel.wire.fetch import FetchPartition, FetchRequest

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_LAST: Final = 2**31 - 1
# A session that was used within this time is not given up for another one's sake.
KEPT_MS: Final = 120_000
# No topic has a longer name. A session could otherwise be filled with megabytes of what does not exist.
NAME_CHARACTERS_MAX: Final = 249

# A topic goes by name or, in newer versions, by id.
TopicKey = str | bytes


class Interest:
    """One partition that is to be fetched, and what its reader was told of it last."""

    __slots__ = ("marks", "name", "partition", "topic")

    def __init__(self, topic: TopicKey, partition: FetchPartition) -> None:
        self.topic = topic
        self.partition = partition
        # What the topic was called when it was last there, for a session that knows it by its id.
        self.name: str | None = None
        # High watermark and log start; None before the first answer and after an error.
        self.marks: tuple[int, int] | None = None


class FetchSession:
    """The partitions of one consumer, in the order in which they are served next."""

    __slots__ = ("by_id", "epoch", "interests", "session_id", "used_at_ms")

    def __init__(self, session_id: int, by_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.used_at_ms = now_ms
        self.interests: dict[tuple[TopicKey, int], Interest] = {}

    def serve_last(self, interest: Interest) -> None:
        """This one had records; next time the others come first."""
        key = (interest.topic, interest.partition.partition)
        if self.interests.pop(key, None) is not None:
            self.interests[key] = interest


class FetchContext(NamedTuple):
    """What one request amounts to: the partitions to look at, and the session they belong to, if any."""

    error: int
    session: FetchSession | None
    interests: list[Interest]
    # Whether partitions that have nothing new are left out of the answer.
    is_incremental: bool


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, sessions_max: int, partitions_max: int) -> None:
        """`partitions_max` is for all sessions together: it bounds the memory whatever clients put into theirs."""
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        # The longest unused one first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, by_id: bool, now_ms: int) -> FetchContext:
        """Which partitions a request asks for, once its session has been brought up to date."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.end(request.session_id)
            interests = _listed(request)
            if request.session_epoch == FINAL_EPOCH or not interests:
                return FetchContext(0, None, interests, False)
            return FetchContext(0, self._begin(interests, by_id, now_ms), interests, False)
        session = self._sessions.get(request.session_id)
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
            # The consumer starts over, and does without a session.
            self.end(session.session_id)
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, [], False)
        return FetchContext(0, session, list(session.interests.values()), True)

    def _begin(self, interests: list[Interest], by_id: bool, now_ms: int) -> FetchSession | None:
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
        session = FetchSession(session_id, by_id, now_ms)
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
        """Bring the session up to date; False if it would have more partitions than sessions may have."""
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
