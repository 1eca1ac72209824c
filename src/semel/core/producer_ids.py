"""The producer ids: which have been handed out, and how old each is.

Ids are reserved in blocks: one journal entry makes a block durable, then its ids are handed out from memory. After a
crash the rest of the block is skipped, so an id is never handed out twice. Every block carries the time at which it was
reserved, and a block is not used for longer than `BLOCK_AGE_MAX_MS`; so a handful of numbers gives the age of every id
to within that time. `core.batch_checks` uses the age: the broker cannot have forgotten an id that is younger than the
time after which it forgets producers, so such an id must begin at sequence number 0.

Only the process that reserved a block knows which of its ids it has handed out. So `apply` counts a whole block as
handed out, and only `open_block`, which recovery never calls, makes its ids available.
"""

from bisect import bisect_right
from typing import Final

from semel.core.entries import ProducerIdsReserved

FIRST_PRODUCER_ID: Final = 1000
BLOCK_IDS: Final = 1000
BLOCK_AGE_MAX_MS: Final = 3_600_000


class ProducerIds:
    """The ids reserved and handed out so far."""

    __slots__ = ("_block_firsts", "_block_times_ms", "_next", "_reserved_until")

    def __init__(self) -> None:
        self._next = FIRST_PRODUCER_ID
        self._reserved_until = FIRST_PRODUCER_ID
        # The blocks whose ids may still be too young to be forgotten, in order: first id and time of reservation.
        self._block_firsts: list[int] = []
        self._block_times_ms: list[int] = []

    @property
    def next_id(self) -> int:
        """Every id that was ever handed out is below this one."""
        return self._next

    def decide_reserve(self, now_ms: int) -> ProducerIdsReserved | None:
        """The entry that must be durable before the next id is handed out; None while the current block has ids
        left.
        """
        times_ms = self._block_times_ms
        if self._next < self._reserved_until and times_ms and abs(now_ms - times_ms[-1]) < BLOCK_AGE_MAX_MS:
            return None
        return ProducerIdsReserved(self._reserved_until, BLOCK_IDS, now_ms)

    def check(self, entry: ProducerIdsReserved) -> None:
        """ValueError for a block with ids that may have been handed out; the journal is damaged."""
        if entry.first < self._reserved_until or entry.count < 1:
            raise ValueError(f"producer ids from {entry.first} on are reserved already")

    def apply(self, entry: ProducerIdsReserved) -> None:
        """The block is reserved. All of it counts as handed out until the process that reserved it opens it."""
        self._next = self._reserved_until = entry.first + entry.count
        self._block_firsts.append(entry.first)
        self._block_times_ms.append(entry.at_ms)

    def open_block(self, entry: ProducerIdsReserved) -> None:
        """Hand out ids from the block that was reserved last. Only the process that has just reserved it may
        call this.
        """
        if entry.first + entry.count != self._reserved_until:
            raise AssertionError("only the block reserved last can be opened")
        self._next = entry.first

    def hand_out(self) -> int:
        if self._next >= self._reserved_until:
            raise AssertionError("an id was handed out that had not been reserved")
        producer_id = self._next
        self._next += 1
        return producer_id

    def is_young(self, producer_id: int, now_ms: int, expiration_ms: int) -> bool:
        """Whether this id was handed out here, and less than `expiration_ms` ago.

        If the time of a block's reservation lies in the future by `BLOCK_AGE_MAX_MS` or more, the clock was wrong then,
        and the age of the block is unknown.
        """
        if producer_id >= self._next:
            return False
        block = bisect_right(self._block_firsts, producer_id) - 1
        return block >= 0 and -BLOCK_AGE_MAX_MS < now_ms - self._block_times_ms[block] < expiration_ms

    def forget_old(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the blocks whose ids are no longer young.

        Producers of that age are forgotten now. So their ids must not become young again if the clock is set back
        later.
        """
        old = 0
        while old < len(self._block_times_ms) and now_ms - self._block_times_ms[old] >= expiration_ms:
            old += 1
        del self._block_firsts[:old]
        del self._block_times_ms[:old]

    def snapshot(self) -> dict[str, object]:
        blocks = list(zip(self._block_firsts, self._block_times_ms, strict=True))
        return {"reserved_until": self._reserved_until, "blocks": blocks}

    def restore(self, snapshot: dict[str, object]) -> None:
        """Load the state in `snapshot`. As after a crash, every id that was reserved counts as handed out."""
        reserved_until = snapshot["reserved_until"]
        blocks = snapshot["blocks"]
        if not isinstance(reserved_until, int) or not isinstance(blocks, list):
            raise ValueError("not a snapshot of producer ids")
        self._next = self._reserved_until = reserved_until
        self._block_firsts = [first for first, _ in blocks]
        self._block_times_ms = [at_ms for _, at_ms in blocks]
