"""The bytes that members of classic consumer groups exchange: what they ask for, what they read, what they are given.

They are the clients' own, and the broker looks into them only if members of both protocols are in one group. Nothing
that is read here is trusted: the answer is None for bytes that are no subscription or no assignment.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

# Subscriptions say from version 1 on what is read already, and from version 3 on in which rack.
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_ASSIGNMENT_VERSION: Final = struct.pack(">h", 0)
_NO_USER_DATA: Final = struct.pack(">i", -1)

TopicPartitions = Mapping[str, tuple[int, ...]]


class MemberSubscription(NamedTuple):
    """What a member asks for, and what it says to read."""

    topic_names: tuple[str, ...]
    owned: TopicPartitions
    rack_id: str | None


class _Unreadable(Exception):
    """Not what it should be."""


class _Cursor:
    """Reads from the front on; never beyond the end, and never more items than there are bytes."""

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
        return self.text() or ""

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
            # One list grows, instead of a new one for each: a client may name one topic a hundred thousand times, and
            # must not keep everybody waiting.
            topics.setdefault(name, []).extend([self.number(">i") for _ in range(self.count())])
        return {name: tuple(indexes) for name, indexes in topics.items()}

    def _take(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise _Unreadable
        return self._data[self._at - size : self._at]


def read_subscription(metadata: bytes) -> MemberSubscription | None:
    """What a member brought to JoinGroup."""
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
    """What a member was given by its leader; none is nothing."""
    if not assignment:
        return {}
    cursor = _Cursor(assignment)
    try:
        cursor.number(">h")
        return cursor.partitions()
    except (_Unreadable, UnicodeDecodeError):
        return None


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """The same, as a member reads it."""
    parts = []
    for name, indexes in partitions:
        encoded = name.encode()
        numbers = list(indexes)
        parts.append(struct.pack(f">h{len(encoded)}si{len(numbers)}i", len(encoded), encoded, len(numbers), *numbers))
    return b"".join([_ASSIGNMENT_VERSION, struct.pack(">i", len(parts)), *parts, _NO_USER_DATA])
