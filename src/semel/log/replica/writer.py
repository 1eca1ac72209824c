"""Creates slots: several at the same time, in order, and each exactly once, whatever the store answers. A slot is sent
when the slot `DEPTH` before it is known to be created, and counts when all slots before it count. If the store does not
answer, the writer sends the same bytes to the same key again. If the slot then has exactly these bytes, this broker
created it. If it has other bytes, a broker that took over wrote them, and this one is fenced: its memory may not be
durable, so it must not answer any more. An answer that relies on memory is sent after a proof that no other broker had
taken over when the request came in. A fence is in the first missing slot, and is never deleted. So if all slots that
this broker has sent are its own, and the next one was missing a moment ago, there was no fence then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from semel.log.core.slots import DEPTH, History
from semel.log.replica.journal import SlotJournal
from semel.log.replica.slot import digest_of, encode_head, key_of
from semel.log.store import Exists, Missing, Store, Unsure

# Large enough that a PUT has many bytes, and small enough that four PUTs arrive soon.
SLOT_BYTES_MAX: Final = 4 * 1024 * 1024
_AGAIN_SECONDS_MIN: Final = 0.05
_AGAIN_SECONDS_MAX: Final = 1.0
_ANSWER_SECONDS_MAX: Final = 30.0

Done = Callable[[int, BaseException | None], None]
# Called for each created slot with the seconds that it took, and its size.
NoteCreated = Callable[[float, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Fenced(Exception):
    """Another broker has taken over; the message, one line, says where this broker noticed it."""


async def create_surely(store: Store, key: str, content: bytes) -> bool:
    """Create an object, however often it must be sent. True if the key now has exactly this object, False if it has
    another one. This takes as long as the store does not answer.
    """
    pause = _AGAIN_SECONDS_MIN
    while True:
        try:
            await store.create(key, content)
            return True
        except Exists:
            pass
        except Unsure:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_SECONDS_MAX)
            continue
        try:
            return (await store.get(key)).body == content
        except Missing:
            # The slot existed a moment ago, and only a broker that has taken over removes slots.
            return False
        except Unsure:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_SECONDS_MAX)


async def answered(call: Callable[[], Awaitable[Result]]) -> Result:
    """The result of a call that may be repeated. This takes as long as the store does not answer."""
    pause = _AGAIN_SECONDS_MIN
    while True:
        try:
            return await call()
        except Unsure:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_SECONDS_MAX)


async def few_at_once(call: Callable[[Item], Awaitable[None]], items: Sequence[Item], count: int) -> None:
    """Make this call for each item, for so many at the same time."""
    for first in range(0, len(items), count):
        await asyncio.gather(*(call(item) for item in items[first : first + count]))


async def listed(store: Store, folder: str) -> dict[str, int]:
    """The keys in a folder, with their sizes, however often the store must be asked."""

    async def asked() -> dict[str, int]:
        return {key: size async for key, size in store.list(folder)}

    return await answered(asked)


async def answered_soon(store: Store, call: Callable[[], Awaitable[Result]]) -> Result:
    """The same for somebody who has to learn that the store does not answer: Unsure after a while."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            return await answered(call)
    except TimeoutError:
        raise Unsure(f"{store.describe()} has not answered for {_ANSWER_SECONDS_MAX:g} s") from None


class SlotWriter:
    """The slots of the active broker, from the one after its fence on. Busy until it is opened: a standby must not
    write."""

    # A kill loses entries that no slot has.
    outlives_kills = False

    def __init__(self, store: Store, journal: SlotJournal, history: History, note_created: NoteCreated) -> None:
        self._store = store
        self._journal = journal
        self._note_created = note_created
        # The position after the last slot that was sent.
        self._history = history
        # The slots under way, in their order: the position after each, and how it ended once that is known.
        self._under_way: dict[int, tuple[int, BaseException | None, bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The history at the cut of the journal, once all slots before it were sent.
        self._at_cut: dict[str, Any] = {}
        self._progress: asyncio.Future[None] | None = None
        # How many proofs were requested, and how many of these were given.
        self._proofs_asked = self._proofs_given = 0
        self._is_proving = False
        self._failed = False
        self._is_open = False

    def open(self) -> None:
        """Begin to write, after the fence, with which the history now ends."""
        self._is_open = True

    @property
    def next_slot(self) -> int:
        """The next slot to send."""
        return self._history.next_slot

    @property
    def is_busy(self) -> bool:
        """Whether no further slot may be sent now."""
        return self._failed or not self._is_open or len(self._under_way) >= DEPTH

    @property
    def has_work(self) -> bool:
        """Whether there are entries that no slot has yet."""
        return self._journal.end > self._journal.slot_end

    def begin(self, done: Done) -> int:
        """Send one more slot; return the position after it. `done` gets that position when everything before it is
        durable, or the reason why it is not.
        """
        self._note_cut()
        body = self._journal.take(SLOT_BYTES_MAX)
        head = self._history.following(sum(map(len, body)), digest_of(body))
        encoded = encode_head(head)
        self._history.take(head, digest_of([encoded]))
        target = self._journal.slot_end
        self._under_way[head.slot] = (target, None, False)
        self._keep(self._create(head.slot, b"".join((encoded, *body)), done))
        return target

    async def history_at(self, cut: int) -> dict[str, Any]:
        """The history up to the place where the journal was marked last, when everything before it is durable."""
        while self._journal.synced < cut:
            await self._next_progress()
        self._note_cut()
        return self._at_cut

    def _note_cut(self) -> None:
        if self._journal.slot_end == self._journal.cut:
            self._at_cut = self._history.to_record()

    def prove(self, done: Done) -> int:
        """Prove that no other broker had taken over before now; returns the number of this proof. `done` gets a number
        when all proofs up to it are given, or why they cannot be. 0 on standby, where nothing has to be proved: another
        broker is active.
        """
        if not self._is_open:
            return 0
        self._proofs_asked += 1
        if not self._is_proving:
            self._is_proving = True
            self._keep(self._prove(done))
        return self._proofs_asked

    async def _prove(self, done: Done) -> None:
        while self._proofs_given < self._proofs_asked and not self._failed:
            number, slot = self._proofs_asked, self._history.next_slot
            try:
                if not await self._is_missing(slot):
                    if self._history.next_slot == slot:
                        where = f"slot {slot} of {self._store.describe()}"
                        raise Fenced(f"another broker has taken over: {where} is not ours")
                    # This broker has sent that slot meanwhile; if it is its own, that proves the same.
                    slot += 1
            except Exception as error:
                done(number, error)
                return
            while next(iter(self._under_way), slot) < slot:
                await self._next_progress()
            self._proofs_given = number
            done(number, None)
        self._is_proving = False

    async def _is_missing(self, slot: int) -> bool:
        try:
            await answered(lambda: self._store.get_range(key_of(slot), 0, 1))
        except Missing:
            return True
        return False

    async def _next_progress(self) -> None:
        """Wait until more slots are certain."""
        if self._progress is None or self._progress.done():
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._progress)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Write nothing more, because another broker may be active from now on; nothing is under way. As on standby,
        nothing has to be proved any more, and the fence of the next broker fences nobody.
        """
        self._is_open = False
        self._cancel()

    def stop(self) -> None:
        """Send nothing more. It is then unknown whether the slots under way become durable."""
        self._failed = True
        self._cancel()

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _create(self, slot: int, content: bytes, done: Done) -> None:
        error: BaseException | None = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if await create_surely(self._store, key_of(slot), content):
                self._note_created(loop.time() - began, len(content))
            else:
                error = Fenced(f"another broker has taken over: slot {slot} of {self._store.describe()} is not ours")
        except Exception as refused:
            error = refused
        self._under_way[slot] = (self._under_way[slot][0], error, True)
        self._settle(done)

    def _settle(self, done: Done) -> None:
        """Report the slots that have ended, up to the first unfinished one."""
        while self._under_way and not self._failed:
            slot, (target, error, has_ended) = next(iter(self._under_way.items()))
            if not has_ended:
                return
            del self._under_way[slot]
            if error is None:
                self._journal.note_synced(target)
                self._history.note_created(next(iter(self._under_way), self._history.next_slot))
                if self._progress is not None and not self._progress.done():
                    self._progress.set_result(None)
            else:
                self._failed = True
            done(target, error)
