"""The audit of a move: compares both logs record by record, in order. It also finds the offset in the target for each
committed offset of a group. Batches that were copied unchanged are compared without opening them. This must never call
two logs equal if one has an additional record, lacks one, or has one in another place.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from semel.ui.transfer.pieces import Piece
from semel.wire.record_bodies import RecordBody, key_and_value

_DIGEST_BYTES: Final = 16
# The digests of so many different records take some 200 MB on each side.
RECORDS_COUNTED_MAX: Final = 1_000_000


class Compared(NamedTuple):
    """How many records are the same on both sides, the offset in the target for each wanted offset, and the offsets of
    the first two records that differ; -1 if one side has no more records.
    """

    records: int
    places: dict[int, int]
    difference: tuple[int, int] | None


class Count(NamedTuple):
    """The differences between two logs."""

    lost: int
    doubled: int
    foreign: int


def compare(
    source: Iterable[Piece],
    target: Iterable[Piece],
    wanted: Iterable[int],
    *,
    may_lack: bool,
    may_begin_later: bool = False,
) -> Compared:
    """Compare both logs from their beginnings. With `may_lack`, compaction may have removed records from the source
    since the copy; with `may_begin_later` as well, retention may have removed its beginning.
    """
    left, right = _Log(iter(source)), _Log(iter(target))
    places = _Places(wanted)
    records = 0
    # The keys of records that only the target has, and their offsets; None for a tombstone. A later record must
    # supersede each of them.
    superseded: dict[bytes | None, int | None] = {}
    while True:
        if may_begin_later and not records:
            # The target's records before the first one that is on both sides need no successor.
            superseded.clear()
        ours, theirs = left.whole(), right.whole()
        if ours is not None and theirs is not None and _are_same(ours, theirs):
            if superseded:
                for body in theirs.bodies():
                    superseded.pop(key_and_value(body.content)[0], None)
            records += ours.header.record_count
            places.note(ours.header.base_offset, theirs.header.base_offset, ours.header.record_count)
            left.take_whole()
            right.take_whole()
            continue
        one, other = left.record(), right.record()
        if one is None and other is None:
            break
        key, value = (None, None) if other is None or not may_lack else key_and_value(other.content)
        if one is not None and other is not None and one[1:] == other[1:]:
            superseded.pop(key, None)
            records += 1
            places.note(one.offset, other.offset, 1)
            left.take()
            right.take()
        elif other is not None and key is not None:
            superseded[key] = None if value is None else other.offset
            right.take()
        else:
            return Compared(records, places.targets, (one.offset if one else -1, other.offset if other else -1))
    # Compaction removes a tombstone without a successor.
    kept = [offset for offset in superseded.values() if offset is not None]
    return Compared(records, places.targets, (-1, kept[0]) if kept else None)


def count_records(log: Iterable[Piece]) -> int:
    return sum(piece.header.record_count if piece.is_plain else len(piece.bodies()) for piece in log)


def behind(log: Iterable[Piece], records: int) -> Iterator[Piece]:
    """The log without its first `records` records."""
    for piece in log:
        bodies = piece.bodies() if records else []
        if records and records >= len(bodies):
            records -= len(bodies)
        else:
            yield piece._replace(start=bodies[records].offset) if records else piece
            records = 0


def count_differences(
    source: Iterable[Piece], target: Iterable[Piece], records_max: int = RECORDS_COUNTED_MAX
) -> Count | None:
    """Count the differences between two logs, by digests of their records; None if one has too many of them to hold all
    digests in memory.
    """
    ours, theirs = _digests(source, records_max), _digests(target, records_max)
    if ours is None or theirs is None:
        return None
    more = theirs - ours
    doubled = sum(count for digest, count in more.items() if digest in ours)
    return Count((ours - theirs).total(), doubled, more.total() - doubled)


def _digests(log: Iterable[Piece], records_max: int) -> Counter[bytes] | None:
    digests: Counter[bytes] = Counter()
    for piece in log:
        digests.update(
            blake2b(b"%d " % body.timestamp_ms + body.content, digest_size=_DIGEST_BYTES).digest()
            for body in piece.bodies()
        )
        if len(digests) > records_max:
            return None
    return digests


def _are_same(one: Piece, other: Piece) -> bool:
    """Whether two batches certainly have the same records, without opening them."""
    ours, theirs = one.header, other.header
    return (
        one.is_plain
        and other.is_plain
        and (ours.record_count, ours.base_timestamp, ours.codec)
        == (theirs.record_count, theirs.base_timestamp, theirs.codec)
        and one.payload == other.payload
    )


class _Log:
    """The records of one side, batch by batch or one by one."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._piece = next(pieces, None)
        self._bodies: deque[RecordBody] = deque()

    def whole(self) -> Piece | None:
        """The next batch, if none of its records was read yet."""
        return None if self._bodies else self._piece

    def take_whole(self) -> None:
        self._piece = next(self._pieces, None)

    def record(self) -> RecordBody | None:
        while not self._bodies and self._piece is not None:
            self._bodies.extend(self._piece.bodies())
            self._piece = next(self._pieces, None)
        return self._bodies[0] if self._bodies else None

    def take(self) -> None:
        self._bodies.popleft()


class _Places:
    """The wanted offsets, and the offsets in the target for them."""

    def __init__(self, wanted: Iterable[int]) -> None:
        self._wanted = deque(sorted(set(wanted)))
        self.targets: dict[int, int] = {}

    def note(self, source: int, target: int, records: int) -> None:
        """`records` records have these offsets. An offset without a record stands for the next record."""
        while self._wanted and self._wanted[0] < source + records:
            wanted = self._wanted.popleft()
            self.targets[wanted] = target + max(wanted - source, 0)
