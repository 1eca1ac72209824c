"""All producers of one partition. There may be ten million of them.

Few of them are heard often. Their states are in a dict, in the order in which they were last heard. The others are at
rest in *pages*. A page has the states of up to 128 producers, sorted by id. It is never changed, only replaced, so a
checkpoint takes it without a copy, and need not write it again. A producer is in the dict or in one page, never in
both: if one at rest is heard, it leaves its page, and if the dict has too many, those that were silent for longest go
into pages.

A state in a page is packed. The batches in a window follow each other (`wire.sequences` accepts no others), so their
record counts and one sequence number say all that they claimed; and a base offset is kept as its distance from the end
of the batch before it. A full window takes 32 to 47 bytes in most partitions, and 130 in the form of `wire.sequences`.

    1 byte    the form: how many batches, how wide the counts and the distances are, and whether there are timestamps
    10        when the producer was last heard and its epoch, as `wire.sequences` keeps them

    only if there are batches:
    4         last sequence number of the last batch
    8         base offset of the last batch
    5 x 1-8   record counts, oldest batch first
    4 x 1-8   distances
    5 x 4     the timestamps that were answered, unless there were none: how long before the producer was last heard

Nothing here may judge a batch.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator
from functools import cache
from itertools import chain, islice
from operator import add, sub
from typing import Final, NamedTuple

from semel.wire.batch import NO_TIMESTAMP
from semel.wire.sequences import BATCH, HEAD_BYTES, advance, last_heard_ms, note, note_marker


class TableBounds(NamedTuple):
    """How many producers a page may have, and how many the dict may have: `recent_min` and a sixteenth of those at
    rest, but no more than `recent_max`.
    """

    page: int = 128
    recent_min: int = 128
    recent_max: int = 16_384
    # The most that are put to rest at once. Each takes some microseconds, and every other request waits meanwhile.
    moved_at_once: int = 64


TABLE_BOUNDS: Final = TableBounds()
_REST_PER_RECENT: Final = 16

_ID: Final = struct.Struct("<q")
_HEARD: Final = struct.Struct("<xq")
# The form of a state that fits into no other: it follows as it is.
_AS_IT_IS: Final = 0xFF
_COUNT_BITS: Final = 0b111
_TIMED: Final = 0x80
_AGE_MAX: Final = (1 << 32) - 1
# By width: the format of an unsigned number of 1, 2, 4 and 8 bytes.
_FORMATS: Final = "BHIQ"


class Place(NamedTuple):
    """Where a page is on disk."""

    file: int
    position: int
    size: int


class Page:
    """Producers at rest, by id. Never changed."""

    ID_BYTES: Final = 8

    __slots__ = ("ids", "oldest_ms", "place", "sizes", "states")

    def __init__(self, ids: bytes, sizes: bytes, states: bytes, oldest_ms: int) -> None:
        # `ID_BYTES` each, rising.
        self.ids = ids
        # One byte each.
        self.sizes = sizes
        # The packed states, in the order of the ids.
        self.states = states
        # None of them was last heard before this.
        self.oldest_ms = oldest_ms
        # Set by the thread that writes checkpoints; nothing here uses it.
        self.place: Place | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def first_id(self) -> int:
        return self.id_at(0)

    def id_at(self, slot: int) -> int:
        return int(_ID.unpack_from(self.ids, slot * self.ID_BYTES)[0])

    def slot_of(self, producer_id: int) -> int:
        """Where the producer is, or belongs."""
        return bisect_left(memoryview(self.ids).cast("q"), producer_id)

    def has_at(self, slot: int, producer_id: int) -> bool:
        return slot < len(self.sizes) and self.id_at(slot) == producer_id

    def packed_at(self, slot: int) -> bytes:
        at = sum(self.sizes[:slot])
        return self.states[at : at + self.sizes[slot]]

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Each producer id with its packed state."""
        at = 0
        for (producer_id,), size in zip(_ID.iter_unpack(self.ids), self.sizes, strict=True):
            yield producer_id, self.states[at : at + size]
            at += size

    def with_one(self, slot: int, producer_id: int, packed: bytes) -> "Page":
        """A page that has this producer, too, in its place."""
        at = sum(self.sizes[:slot])
        return Page(
            b"".join((self.ids[: slot * self.ID_BYTES], _ID.pack(producer_id), self.ids[slot * self.ID_BYTES :])),
            b"".join((self.sizes[:slot], bytes((len(packed),)), self.sizes[slot:])),
            b"".join((self.states[:at], packed, self.states[at:])),
            min(self.oldest_ms, heard_of(packed)),
        )

    def without(self, slot: int) -> "Page":
        """A page without the producer at this slot."""
        at = sum(self.sizes[:slot])
        return Page(
            self.ids[: slot * self.ID_BYTES] + self.ids[(slot + 1) * self.ID_BYTES :],
            self.sizes[:slot] + self.sizes[slot + 1 :],
            self.states[:at] + self.states[at + self.sizes[slot] :],
            self.oldest_ms,
        )

    def split(self, slot: int) -> "tuple[Page, Page]":
        """A page of the producers before this slot, and one of the others."""
        at = sum(self.sizes[:slot])
        return (
            Page(self.ids[: slot * self.ID_BYTES], self.sizes[:slot], self.states[:at], self.oldest_ms),
            Page(self.ids[slot * self.ID_BYTES :], self.sizes[slot:], self.states[at:], self.oldest_ms),
        )

    def joined(self, following: "Page") -> "Page":
        return Page(
            self.ids + following.ids,
            self.sizes + following.sizes,
            self.states + following.states,
            min(self.oldest_ms, following.oldest_ms),
        )


class Snapshot(NamedTuple):
    """What was on record at one time. Later changes do not affect it."""

    # In the order in which they were last heard.
    recent: dict[int, bytes]
    # In the order of their ids.
    pages: list[Page]


class Producers:
    """Everything on record about the producers of one partition."""

    __slots__ = ("_at_rest", "_bounds", "_first_ids", "_next_page", "_pages", "_recent", "_recent_max")

    def __init__(self, bounds: TableBounds = TABLE_BOUNDS) -> None:
        self._bounds = bounds
        self._recent: dict[int, bytes] = {}
        self._recent_max = bounds.recent_min
        self._pages: list[Page] = []
        self._first_ids: list[int] = []
        self._at_rest = 0
        # The page at which a search for silent producers goes on.
        self._next_page = 0

    def __len__(self) -> int:
        return len(self._recent) + self._at_rest

    @property
    def pages(self) -> list[Page]:
        """The pages of producers at rest."""
        return self._pages

    def get(self, producer_id: int) -> bytes | None:
        state = self._recent.get(producer_id)
        return self._find(producer_id) if state is None and self._pages else state

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Every producer id with its state: first those at rest, by id, then the others, the longest silent first."""
        at_rest = ((one, unpack(packed)) for page in self._pages for one, packed in page.items())
        return chain(at_rest, self._recent.items())

    def latest(self) -> Iterator[tuple[int, bytes]]:
        """The same in reverse: the most recently heard first."""
        at_rest = (
            (one, unpack(packed)) for page in reversed(self._pages) for one, packed in reversed(list(page.items()))
        )
        return chain(reversed(self._recent.items()), at_rest)

    def note(
        self,
        producer_id: int,
        now_ms: int,
        epoch: int,
        last_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp_ms: int,
    ) -> None:
        """Put an accepted batch on record."""
        recent = self._recent
        state = recent.pop(producer_id, None)
        if state is None and self._pages:
            state = self._take(producer_id)
        recent[producer_id] = note(state, now_ms, epoch, last_sequence, record_count, base_offset, timestamp_ms)
        if len(recent) > self._recent_max:
            self._put_to_rest()

    def note_marker(self, producer_id: int, now_ms: int, epoch: int) -> None:
        """Put the marker of a transaction on record."""
        recent = self._recent
        state = recent.pop(producer_id, None)
        if state is None and self._pages:
            state = self._take(producer_id)
        recent[producer_id] = note_marker(state, now_ms, epoch)
        if len(recent) > self._recent_max:
            self._put_to_rest()

    def forget_silent(self, before_ms: int, at_most: int, kept: Container[int] = ()) -> int:
        """Forget up to `at_most` producers that were last heard before `before_ms`, but none in `kept`; return how
        many. If it is fewer than `at_most`, there are no more.
        """
        count = self._forget_recent(before_ms, at_most, kept)
        while count < at_most and self._next_page < len(self._pages):
            slot = self._next_page
            page = self._pages[slot]
            if page.oldest_ms < before_ms:
                left, forgotten = _without_silent(page, before_ms, at_most - count, kept)
                count += forgotten
                self._at_rest -= forgotten
                if forgotten or left.oldest_ms > page.oldest_ms:
                    # Otherwise it is the same page, and need not be written again.
                    self._replace(slot, left)
                if count == at_most:
                    # The page may have more of them.
                    return count
                if not left or self._joined(slot):
                    continue
            self._next_page += 1
        if count < at_most:
            self._next_page = 0
        return count

    @property
    def weight(self) -> int:
        """How many objects a snapshot refers to."""
        return len(self._recent) + len(self._pages)

    def snapshot(self) -> Snapshot:
        """A copy of the record. The pages are not copied."""
        return Snapshot(dict(self._recent), list(self._pages))

    def restore(self, snapshot: Snapshot) -> None:
        """Take everything from a snapshot, which may have been taken with other bounds."""
        self._recent = dict(snapshot.recent)
        self._pages = list(snapshot.pages)
        self._first_ids = [page.first_id for page in self._pages]
        self._at_rest = sum(map(len, self._pages))
        self._next_page = 0
        self._bound_recent()
        while len(self._recent) > self._recent_max:
            self._put_to_rest()

    # -- those that are heard often -----------------------------------------------------------------------------

    def _forget_recent(self, before_ms: int, at_most: int, kept: Container[int]) -> int:
        silent: list[int] = []
        for producer_id, state in self._recent.items():
            heard_ms = last_heard_ms(state)
            if heard_ms < before_ms:
                if producer_id not in kept:
                    silent.append(producer_id)
                    if len(silent) == at_most:
                        break
            elif heard_ms <= last_heard_ms(next(reversed(self._recent.values()))):
                break
            # Otherwise the clock was ahead when this producer was heard, and producers after it may be older.
        for producer_id in silent:
            del self._recent[producer_id]
        return len(silent)

    def _bound_recent(self) -> None:
        bounds = self._bounds
        self._recent_max = min(bounds.recent_min + self._at_rest // _REST_PER_RECENT, bounds.recent_max)

    def _put_to_rest(self) -> None:
        """Put those that were silent for longest into pages."""
        silent = list(islice(self._recent.items(), min(self._bounds.moved_at_once, self._recent_max // 2 + 1)))
        for producer_id, state in silent:
            del self._recent[producer_id]
            self._put(producer_id, pack(state))
        self._bound_recent()

    # -- those at rest ------------------------------------------------------------------------------------------

    def _page_of(self, producer_id: int) -> int:
        """The page where the producer is, or belongs."""
        return max(bisect_right(self._first_ids, producer_id) - 1, 0)

    def _find(self, producer_id: int) -> bytes | None:
        page = self._pages[self._page_of(producer_id)]
        slot = page.slot_of(producer_id)
        return unpack(page.packed_at(slot)) if page.has_at(slot, producer_id) else None

    def _take(self, producer_id: int) -> bytes | None:
        """The state of a producer at rest, which leaves its page; None if it is in none."""
        number = self._page_of(producer_id)
        page = self._pages[number]
        slot = page.slot_of(producer_id)
        if not page.has_at(slot, producer_id):
            return None
        self._at_rest -= 1
        self._replace(number, page.without(slot))
        self._joined(number)
        return unpack(page.packed_at(slot))

    def _put(self, producer_id: int, packed: bytes) -> None:
        self._at_rest += 1
        if not self._pages:
            self._pages, self._first_ids = [page_of([(producer_id, packed)])], [producer_id]
            return
        number = self._page_of(producer_id)
        page = self._pages[number]
        slot = page.slot_of(producer_id)
        if len(page) < self._bounds.page:
            self._replace(number, page.with_one(slot, producer_id, packed))
        elif slot == len(page):
            # New producers have rising ids: the page they leave behind stays full.
            self._put_first(number + 1, producer_id, packed)
        else:
            first, second = page.with_one(slot, producer_id, packed).split(len(page) // 2 + 1)
            self._replace(number, first)
            self._insert(number + 1, second)

    def _put_first(self, number: int, producer_id: int, packed: bytes) -> None:
        """Put the producer, whose id is lower than all in this page, into it; or into a page of its own before it, if
        it is full or there is none. Where producers come with falling ids, each would have a page of its own otherwise.
        """
        following = self._pages[number] if number < len(self._pages) else None
        if following is not None and len(following) < self._bounds.page:
            self._replace(number, following.with_one(0, producer_id, packed))
        else:
            self._insert(number, page_of([(producer_id, packed)]))

    def _insert(self, number: int, page: Page) -> None:
        self._pages.insert(number, page)
        self._first_ids.insert(number, page.first_id)

    def _replace(self, number: int, page: Page) -> None:
        """Replace a page by this one, or remove it if this one is empty."""
        if page:
            self._pages[number] = page
            self._first_ids[number] = page.first_id
        else:
            del self._pages[number], self._first_ids[number]

    def _joined(self, number: int) -> bool:
        """Join the page with the one before it if both are small; whether it was."""
        if not 0 < number < len(self._pages):
            return False
        before, page = self._pages[number - 1 : number + 1]
        if 8 * len(page) > self._bounds.page or 2 * (len(before) + len(page)) > self._bounds.page:
            return False
        self._replace(number - 1, before.joined(page))
        del self._pages[number], self._first_ids[number]
        return True


def page_of(items: Iterable[tuple[int, bytes]]) -> Page:
    """A page with these packed states. The ids rise."""
    ids, states = [], []
    for producer_id, packed in items:
        ids.append(_ID.pack(producer_id))
        states.append(packed)
    oldest_ms = min(map(heard_of, states), default=0)
    return Page(b"".join(ids), bytes(map(len, states)), b"".join(states), oldest_ms)


def _without_silent(page: Page, before_ms: int, at_most: int, kept: Container[int]) -> tuple[Page, int]:
    """The page without up to `at_most` producers last heard before `before_ms`, and how many these are."""
    left: list[tuple[int, bytes]] = []
    count = 0
    for producer_id, packed in page.items():
        if count < at_most and heard_of(packed) < before_ms and producer_id not in kept:
            count += 1
        else:
            left.append((producer_id, packed))
    return page_of(left), count


# -- packed states --------------------------------------------------------------------------------------------------


def pack(state: bytes) -> bytes:
    """A state in the form that pages keep."""
    batches = state[HEAD_BYTES:]
    if not batches:
        return b"\0" + state
    # One value for each batch, oldest first.
    sequences, counts, offsets, times = zip(*BATCH.iter_unpack(batches), strict=True)
    are_consecutive = tuple(map(advance, sequences, counts[1:])) == sequences[1:]
    ends = map(add, offsets, counts)
    distances = tuple(map(sub, offsets[1:], ends))
    ages: tuple[int, ...] = ()
    if times.count(NO_TIMESTAMP) < len(times):
        heard_ms = last_heard_ms(state)
        ages = tuple(heard_ms - time for time in times)
    if not are_consecutive or min((0, *distances, *ages)) < 0 or max(ages, default=0) > _AGE_MAX:
        return bytes((_AS_IT_IS,)) + state
    form = len(counts) | _width(counts) << 3 | _width(distances) << 5 | (_TIMED if ages else 0)
    numbers = _numbers_of(form).pack(sequences[-1], offsets[-1], *counts, *distances, *ages)
    return b"".join((bytes((form,)), state[:HEAD_BYTES], numbers))


def unpack(packed: bytes) -> bytes:
    """The state, in the form of `wire.sequences`."""
    form = packed[0]
    if form == _AS_IT_IS or not form:
        return packed[1:]
    count = form & _COUNT_BITS
    sequence, offset, *numbers = _numbers_of(form).unpack_from(packed, 1 + HEAD_BYTES)
    times = [NO_TIMESTAMP] * count
    if form & _TIMED:
        heard_ms = heard_of(packed)
        times = [heard_ms - age for age in numbers[2 * count - 1 :]]
    # The latest batch first.
    parts = []
    for slot in range(count - 1, -1, -1):
        records = numbers[slot]
        parts.append(BATCH.pack(sequence, records, offset, times[slot]))
        sequence = advance(sequence, -records)
        if slot:
            offset -= numbers[slot - 1] + numbers[count + slot - 1]
    parts.append(packed[1 : 1 + HEAD_BYTES])
    parts.reverse()
    return b"".join(parts)


def heard_of(packed: bytes) -> int:
    """When the producer with this packed state was last heard."""
    return int(_HEARD.unpack_from(packed)[0])


@cache
def _numbers_of(form: int) -> struct.Struct:
    """The numbers after the head of a packed state of this form. There are fewer than 256 forms."""
    count = form & _COUNT_BITS
    counts, distances = _FORMATS[form >> 3 & 3], _FORMATS[form >> 5 & 3]
    ages = f"{count}I" if form & _TIMED else ""
    return struct.Struct(f"<Iq{count}{counts}{count - 1}{distances}{ages}")


def _width(numbers: Iterable[int]) -> int:
    """0 to 3, for the 1, 2, 4 or 8 bytes that the largest of these numbers takes."""
    return max(0, (max(numbers, default=0).bit_length() - 1).bit_length() - 3)
