"""The producer ids: which have been handed out, to whom each belongs, and how old each is.

Every owner has ranges of `RANGE_IDS` ids, of its own for ever. An owner is a principal whose idempotent producers ask
for ids. Transactional ids, and all clients while no access rules are in force, share the ids of `NOBODY`, in the first
range. The owner of an id follows from its range, so that a batch with the id of another principal can be refused.

Within a range ids are reserved in blocks: one journal entry makes a block durable, then its ids are handed out from
memory. After a crash the rest of the block is skipped, so an id is never handed out twice. Every block carries the time
at which it was reserved, and a block is not used for longer than `BLOCK_AGE_MAX_MS`; so a handful of numbers gives the
age of every id to within that time. `core.batch_checks` uses the age: the broker cannot have forgotten an id that is
younger than the time after which it forgets producers, so such an id must begin at sequence number 0. Blocks are also
numbered: when a topic is deleted, all open blocks are left, and the number of blocks until then says which ids may have
had state in it.

Only the process that reserved a block knows which of its ids it has handed out. So `apply` counts a whole block as
handed out, and only `open_block`, which recovery never calls, makes its ids available.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final, NamedTuple

from semel.log.core.entries import ProducerIdsReserved, TopicDeleted

FIRST_PRODUCER_ID: Final = 1000
BLOCK_IDS: Final = 1000
BLOCK_AGE_MAX_MS: Final = 3_600_000
# Enough for nearly every owner: a client that asks for ten thousand ids a second needs another range each day.
# Ids have 63 bits, which is enough for nine billion ranges.
RANGE_IDS: Final = 1_000_000_000
# Known ranges. Each takes about 300 bytes in memory, and 60 in every checkpoint. If there are more, the range in which
# no block was reserved for the longest time is forgotten, but never the first one: its ids are then nobody's, and no
# other owner ever gets them.
RANGES_MAX: Final = 100_000
# The owner of the ids of transactional ids, and of all ids handed out while no access rules are in force.
NOBODY: Final = ""


class _Range(NamedTuple):
    """The owner of a range, and the first of its ids that is not reserved yet."""

    owner: str
    reserved_until: int


class _Block(NamedTuple):
    """A block whose ids may still be too young to be forgotten. The first block has number 1."""

    until: int
    at_ms: int
    number: int


class ProducerIds:
    """The ids reserved and handed out so far."""

    __slots__ = ("_blocks", "_firsts", "_next", "_numbers", "_ranges", "_ranges_max", "_ranges_taken", "block_count")

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        self._ranges_max = ranges_max
        # By the number of the range; the one that was not used for the longest time first.
        self._ranges: dict[int, _Range] = {}
        # The number of the range that an owner uses now.
        self._numbers: dict[str, int] = {}
        # How many ranges have been taken. The first one is for `NOBODY` alone.
        self._ranges_taken = 1
        # How many blocks have ever been reserved.
        self.block_count = 0
        # By first id, in the order in which they were reserved; and their first ids in order.
        self._blocks: dict[int, _Block] = {}
        self._firsts: list[int] = []
        # For each owner with an open block, the id to hand out next. Never stored.
        self._next: dict[str, int] = {}

    def owner_of(self, producer_id: int) -> str | None:
        """The owner of the range in which this id is; None if nobody is known to have that range."""
        known = self._ranges.get(producer_id // RANGE_IDS)
        return None if known is None else known.owner

    def taken(self) -> Iterator[tuple[str, int]]:
        """The owner of each known range, and the first id in it that is not reserved yet; in the order of the ids."""
        for _, known in sorted(self._ranges.items()):
            yield known

    def decide_reserve(self, now_ms: int, owner: str = NOBODY) -> ProducerIdsReserved | None:
        """The entry that must be durable before the owner gets the next id; None while its open block has ids left."""
        following = self._next.get(owner)
        if following is not None:
            block = self._block_of(following)
            if block is not None and abs(now_ms - block.at_ms) < BLOCK_AGE_MAX_MS:
                return None
        return ProducerIdsReserved(self._first_of_next_block(owner), BLOCK_IDS, now_ms, owner)

    def _first_of_next_block(self, owner: str) -> int:
        number = self._numbers.get(owner)
        if number is not None:
            first = self._ranges[number].reserved_until
            if first + BLOCK_IDS <= (number + 1) * RANGE_IDS:
                return first
        elif owner == NOBODY and 0 not in self._ranges:
            return FIRST_PRODUCER_ID
        return self._ranges_taken * RANGE_IDS

    def check(self, entry: ProducerIdsReserved | TopicDeleted) -> None:
        """ValueError for a block with ids that may have been handed out, or of a range that belongs to somebody else:
        the journal is damaged.
        """
        if isinstance(entry, TopicDeleted):
            return
        number = entry.first // RANGE_IDS
        known = self._ranges.get(number)
        if entry.count < 1 or (entry.first + entry.count - 1) // RANGE_IDS != number:
            raise ValueError(f"{entry.count} producer ids from {entry.first} on are no block")
        if known is None:
            is_new = number >= self._ranges_taken or (number == 0 and entry.owner == NOBODY)
        else:
            is_new = entry.first >= known.reserved_until and entry.owner == known.owner
        if not is_new:
            raise ValueError(f"producer ids from {entry.first} on are reserved already")

    def apply(self, entry: ProducerIdsReserved | TopicDeleted) -> None:
        """A block is reserved: all of it counts as handed out until the process that reserved it opens it. Or a topic
        is deleted, and all open blocks are left.
        """
        if isinstance(entry, TopicDeleted):
            self._next.clear()
            return
        number, until = entry.first // RANGE_IDS, entry.first + entry.count
        # The range that was used last goes to the end.
        self._ranges.pop(number, None)
        self._ranges[number] = _Range(entry.owner, until)
        self._numbers[entry.owner] = number
        self._ranges_taken = max(self._ranges_taken, number + 1)
        self._next.pop(entry.owner, None)
        self.block_count += 1
        self._blocks[entry.first] = _Block(until, entry.at_ms, self.block_count)
        insort(self._firsts, entry.first)
        if len(self._ranges) > self._ranges_max:
            self._forget_range(next(number for number in self._ranges if number))

    def _forget_range(self, number: int) -> None:
        owner = self._ranges.pop(number).owner
        if self._numbers[owner] == number:
            del self._numbers[owner]
            self._next.pop(owner, None)

    def open_block(self, entry: ProducerIdsReserved) -> None:
        """Hand out ids from the block that was reserved last. Only the process that has just reserved it may
        call this.
        """
        block = self._blocks.get(entry.first)
        if block is None or block.number != self.block_count:
            raise AssertionError("only the block reserved last can be opened")
        self._next[entry.owner] = entry.first

    def hand_out(self, owner: str = NOBODY) -> int:
        producer_id = self._next.get(owner)
        if producer_id is None:
            raise AssertionError("an id was handed out that had not been reserved")
        self._next[owner] = producer_id + 1
        if producer_id + 1 >= self._ranges[producer_id // RANGE_IDS].reserved_until:
            del self._next[owner]
        return producer_id

    def is_young(self, producer_id: int, now_ms: int, expiration_ms: int, after_block: int = 0) -> bool:
        """Whether this id was handed out here less than `expiration_ms` ago, from a block with a number above
        `after_block`.

        If the time of a block's reservation lies in the future by `BLOCK_AGE_MAX_MS` or more, the clock was wrong then,
        and the age of the block is unknown.
        """
        block = self._block_of(producer_id)
        if block is None or block.number <= after_block:
            return False
        known = self._ranges.get(producer_id // RANGE_IDS)
        if known is not None and producer_id >= self._next.get(known.owner, block.until):
            return False
        return -BLOCK_AGE_MAX_MS < now_ms - block.at_ms < expiration_ms

    def _block_of(self, producer_id: int) -> _Block | None:
        place = bisect_right(self._firsts, producer_id) - 1
        if place < 0:
            return None
        block = self._blocks[self._firsts[place]]
        return block if producer_id < block.until else None

    def forget_old(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the blocks whose ids are no longer young.

        Producers of that age are forgotten now. So their ids must not become young again if the clock is set back
        later.
        """
        old = list(takewhile(lambda first: now_ms - self._blocks[first].at_ms >= expiration_ms, self._blocks))
        for first in old:
            del self._blocks[first]
        if old:
            self._firsts = sorted(self._blocks)

    def snapshot(self) -> dict[str, object]:
        return {
            "ranges_taken": self._ranges_taken,
            "ranges": [(number, *known) for number, known in self._ranges.items()],
            "block_count": self.block_count,
            "blocks": [(first, *block) for first, block in self._blocks.items()],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Load the state in `snapshot`. As after a crash, every id that was reserved counts as handed out."""
        try:
            self._ranges_taken = int(snapshot["ranges_taken"])
            self.block_count = int(snapshot["block_count"])
            self._ranges = {number: _Range(*known) for number, *known in snapshot["ranges"]}
            self._blocks = {first: _Block(*block) for first, *block in snapshot["blocks"]}
        except (KeyError, TypeError) as error:
            raise ValueError("not a snapshot of producer ids") from error
        self._firsts = sorted(self._blocks)
        self._numbers = {known.owner: number for number, known in sorted(self._ranges.items())}
        self._next = {}
