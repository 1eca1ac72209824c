"""The bytes that classic consumers exchange: subscriptions and assignments.

Their format is the clients' own. The broker always reads which topics a member subscribes to; it reads the rest only if
a group has members of both protocols. It does not trust the bytes: the result is None for bytes that are not a
subscription or an assignment.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

# The versions from which a subscription has the owned partitions, the generation, and the rack.
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_ASSIGNMENT_VERSION: Final = struct.pack(">h", 0)
_NO_USER_DATA: Final = struct.pack(">i", -1)

TopicPartitions = Mapping[str, tuple[int, ...]]


class MemberSubscription(NamedTuple):
    """The topics to which a member subscribes, and the partitions that it says it owns."""

    topic_names: tuple[str, ...]
    owned: TopicPartitions
    rack_id: str | None


class _Unreadable(Exception):
    """The bytes do not have the expected format."""


class _Cursor:
    """Reads from front to back; never beyond the end, and never more items than there are bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        (value,) = struct.unpack(form, self._take(size))
        return int(value)

    def text(self) -> str | None:
        size = self.number(">h")
        return None if size < 0 else self._take(size).decode()

    def name(self) -> str:
        name = self.text()
        if name is None:
            raise _Unreadable
        return name

    def skip_bytes(self) -> None:
        self._take(max(self.number(">i"), 0))

    def count(self) -> int:
        count = self.number(">i")
        if not 0 <= count <= len(self._data) - self._at:
            raise _Unreadable
        return count

    def partitions(self) -> TopicPartitions:
        topics: dict[str, list[int]] = {}
        for _ in range(self.count()):
            name = self.name()
            # One list grows, instead of a new list each time: a client may name one topic a hundred thousand times, and
            # must not hold up all other requests.
            topics.setdefault(name, []).extend([self.number(">i") for _ in range(self.count())])
        return {name: tuple(indexes) for name, indexes in topics.items()}

    def _take(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise _Unreadable
        return self._data[self._at - size : self._at]


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in the metadata of a JoinGroup request: every version of a subscription begins with them."""
    cursor = _Cursor(metadata)
    try:
        version = cursor.number(">h")
        names = frozenset([cursor.name() for _ in range(cursor.count())])
    except (_Unreadable, UnicodeDecodeError):
        return None
    return names if version >= 0 else None


def read_subscription(metadata: bytes) -> MemberSubscription | None:
    """The subscription in the metadata of a JoinGroup request."""
    cursor = _Cursor(metadata)
    try:
        version = cursor.number(">h")
        names = tuple([cursor.name() for _ in range(cursor.count())])
        cursor.skip_bytes()
        owned = cursor.partitions() if version >= _OWNED_FROM else {}
        if version >= _GENERATION_FROM:
            cursor.number(">i")
        rack_id = cursor.text() if version >= _RACK_FROM else None
    except (_Unreadable, UnicodeDecodeError):
        return None
    return MemberSubscription(names, owned, rack_id) if version >= 0 else None


def read_assignment(assignment: bytes) -> TopicPartitions | None:
    """The partitions that the leader assigned to a member; no bytes mean no partitions."""
    if not assignment:
        return {}
    cursor = _Cursor(assignment)
    try:
        cursor.number(">h")
        return cursor.partitions()
    except (_Unreadable, UnicodeDecodeError):
        return None


def topics_named_in(metadata: bytes, assignment: bytes) -> frozenset[str] | None:
    """All topics that are named in a member's metadata and assignment; None if one of them cannot be read. Either may
    be empty.
    """
    subscription = read_subscription(metadata) if metadata else MemberSubscription((), {}, None)
    assigned = read_assignment(assignment)
    if subscription is None or assigned is None:
        return None
    return frozenset((*subscription.topic_names, *subscription.owned, *assigned))


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """An assignment as the bytes that a member reads."""
    parts = []
    for name, indexes in partitions:
        encoded = name.encode()
        numbers = list(indexes)
        parts.append(struct.pack(f">h{len(encoded)}si{len(numbers)}i", len(encoded), encoded, len(numbers), *numbers))
    return b"".join([_ASSIGNMENT_VERSION, struct.pack(">i", len(parts)), *parts, _NO_USER_DATA])
