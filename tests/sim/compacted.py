"""Keyed records in a topic that is compacted: what is written, and which of it may be gone in the end.

A record's key, and whether it deletes that key, follow from its value, so that whoever knows the value knows all of it.
What may be gone is what a later record of its key has replaced, what deletes its key, and what was aborted; the last
record of each key may not, and no record may be found at another offset than before.
"""

from binascii import crc32
from collections.abc import Callable, Collection, Iterable
from typing import Final

from semel.testing.checkers import READ_COMMITTED, Event, Place, Truth, events, is_transaction, outcomes
from semel.wire.records import Record

KEYS: Final = 5
# One of so many records deletes its key.
DELETES_ONE_OF: Final = 6
# Where the text of a record without a value is.
TEXT_HEADER: Final = "text"


def key_of(value: str) -> int:
    return crc32(value.encode()) % KEYS


def deletes(value: str) -> bool:
    return crc32(value.encode()) // KEYS % DELETES_ONE_OF == 0


def keyed_record(value: str, text: bytes, timestamp_ms: int) -> Record:
    """The record of a value; `text` is all that is to be read of it."""
    key = b"%d" % key_of(value)
    if deletes(value):
        return Record(None, key, [(TEXT_HEADER, text)], timestamp_ms)
    return Record(text, key, (), timestamp_ms)


def text_of(record: Record) -> str:
    """What is to be read of a record, keyed or not."""
    if record.value is None:
        return (dict(record.headers)[TEXT_HEADER] or b"").decode()
    return record.value.decode()


class Replaced:
    """What is known of the last committed record of each key."""

    def __init__(self, topics: Iterable[str], is_committed: Callable[[str], bool]) -> None:
        self._topics = frozenset(topics)
        self._is_committed = is_committed
        self._last: dict[tuple[Place, int], int] = {}
        self._at: dict[str, tuple[Place, int]] = {}

    def note(self, place: Place, offset: int, value: str, *, committed: bool = False) -> None:
        """A record was seen or acknowledged. `committed`: it was shown to somebody who reads committed records."""
        if place[0] in self._topics:
            self._at[value] = place, offset
            if committed or self._is_committed(value):
                key = place, key_of(value)
                self._last[key] = max(offset, self._last.get(key, -1))

    def has(self, value: str) -> bool:
        """Whether this committed record may be gone."""
        if value not in self._at:
            return False
        place, offset = self._at[value]
        return deletes(value) or offset < self._last.get((place, key_of(value)), -1)

    def may_lack(self, value: str) -> bool:
        """Whether this record may be gone, committed or not."""
        return self.has(value) or (value in self._at and not self._is_committed(value))


def replaced(history: list[Event], truth: Truth, compacted: Collection[str]) -> Replaced:
    """What may be gone of the compacted topics."""
    ended = outcomes(history)

    def is_committed(value: str) -> bool:
        sender = value.rpartition("/")[0]
        return not is_transaction(sender) or ended.get(sender) == "committed"

    found = Replaced(compacted, is_committed)
    for _, acked in events(history, "acked"):
        for offset, value in enumerate(acked["values"], start=acked["offset"]):
            found.note((acked["topic"], acked["partition"]), offset, value)
    for _, read in events(history, "read"):
        for offset, value in read["records"]:
            place = read["topic"], read["partition"]
            found.note(place, offset, value, committed=read["isolation"] == READ_COMMITTED)
    for place, records in truth.committed.items():
        for seen in records:
            found.note(place, seen.offset, seen.value, committed=True)
    return found
