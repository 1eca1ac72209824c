"""Long work, done a little at a time, so that other requests need not wait for all of it.

A function that may have much to do is a generator: after each little piece it yields how much that was, and at the end
it returns its result. The driver of the steps decides when others go first. One piece of work is about what one element
of a message takes, some millionths of a second; an append takes `APPEND_PIECES` of them.

Work that only computes, and cannot be cut into pieces, is handed over as it is, to be done elsewhere. If only a few may
do something at once, the others wait at a `Door`.

Between two pieces anything else may happen: what is looked up before a `yield` is looked up again behind it, and what
must not be seen half done has no `yield` in it. This file must never know what the work is.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class Elsewhere:
    """Work that touches nothing but what it was given, so that it may be done in a thread while others go on here."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: Exception | None = None

    def do(self) -> None:
        """All of it, with nothing raised."""
        try:
            self._work()
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise what it broke off with."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            # Its traceback knows this frame and all that the work had in memory: in a circle, that would stay.
            del error


class Waiting:
    """Steps that go on only when they are let. Their driver is told when that is."""

    def __init__(self) -> None:
        self._is_over = False
        self._tell: Callable[[], None] | None = None

    def tell(self, goes_on: Callable[[], None]) -> None:
        """Call this when the wait is over, or now if it is."""
        if self._is_over:
            goes_on()
        else:
            self._tell = goes_on

    def end(self) -> None:
        self._is_over = True
        if self._tell is not None:
            self._tell()


Steps = Generator[int | Elsewhere | Waiting, None, T]

# A write to the journal and to a segment takes as long as this many elements of a message.
APPEND_PIECES: Final = 20


class Pace(NamedTuple):
    """How much is done before others go. A test that wants others in between everywhere asks for less."""

    # Pieces of work in one turn of the event loop: some milliseconds.
    pieces_per_turn: int = 500
    # An end of a transaction in more partitions and groups than this is prepared, in steps.
    unprepared_max: int = 50
    # Offsets that are committed in one entry: a few milliseconds.
    offsets_per_entry_max: int = 500


# Items that are put in order between two steps.
SORTED_AT_ONCE: Final = 500


def finish(steps: Steps[T]) -> T:
    """All of it at once, for a caller that keeps no other request waiting."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Elsewhere):
            step.do()
        elif isinstance(step, Waiting):
            raise RuntimeError("no other steps run meanwhile, so this would wait for ever")


def elsewhere(work: Callable[[], A]) -> Steps[A]:
    """What `work` computes, which takes the processor for long and lets others have the interpreter meanwhile."""
    computed: list[A] = []
    handed_over = Elsewhere(lambda: computed.append(work()))
    yield handed_over
    handed_over.check()
    return computed[0]


class Door:
    """A few may be inside at once. The others wait, and go in in the order in which they came.

    Work that is inside must not wait at another door, or two could wait for each other for ever.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[Waiting] = deque()

    def inside(self, work: Steps[A]) -> Steps[A]:
        """Do this work when there is a place. Its place is free for the next one however it ends."""
        yield from self._enter()
        try:
            return (yield from work)
        finally:
            self._leave()

    def _enter(self) -> Steps[None]:
        if self._free:
            self._free -= 1
            return
        waiting = Waiting()
        self._waiting.append(waiting)
        try:
            yield waiting
        except BaseException:
            # Given up: it is still in the row, or a place was kept for it.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        if self._waiting:
            # A place passes from one to the other, so that no third one comes in between.
            self._waiting.popleft().end()
        else:
            self._free += 1


def at_once(work: Callable[[], None]) -> Steps[None]:
    """What is short, as a step."""
    work()
    yield APPEND_PIECES


def in_order(items: Iterable[str]) -> Steps[list[str]]:
    """The items sorted, each once. Sorting a hundred thousand at once would take as long as a hundred requests."""
    left = iter(items)
    heaps: list[list[str]] = []
    while some := list(islice(left, SORTED_AT_ONCE)):
        heaps.append(sorted(some))
        yield len(some)
    done: list[str] = []
    for item in merge(*heaps):
        if not done or done[-1] != item:
            done.append(item)
        yield 1
    return done


def each(items: Iterable[A], work: Callable[[A], T], pieces: int = 1) -> Steps[list[T]]:
    """What `work` makes of every item; each item counts as `pieces` pieces of work."""
    done = []
    for item in items:
        done.append(work(item))
        yield pieces
    return done
