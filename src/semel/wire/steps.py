"""Long work in small steps, so that other requests need not wait until all of it is done.

A function that may have much to do is a generator: after each small step it yields how many pieces of work that was,
and at the end it returns its result. The driver of the steps decides when other requests go first. A piece of work is
about what one element of a message takes, some microseconds; an append takes `APPEND_PIECES`.

Work that only computes and cannot be divided is yielded as `Elsewhere`, and the driver may run it in a thread. If only
a few requests may do something at the same time, the others wait at a `Door`.

Between two steps any other request may run. So a function looks things up again after a `yield`, and has no `yield` in
a change that nobody may see half done. This file must never know what the work is.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class Elsewhere:
    """Work that uses only its own arguments, so that a thread may do it while other requests go on."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: Exception | None = None

    def do(self) -> None:
        """Do the work. An exception is kept for `check`."""
        try:
            self._work()
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise the exception with which the work ended, if it did."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            # The traceback refers to this frame, and the frame to the error: this cycle would keep the work's data
            # alive.
            del error


class Waiting:
    """Yielded by steps that must wait until another part of the program calls `end`."""

    def __init__(self) -> None:
        self._is_over = False
        self._tell: Callable[[], None] | None = None

    def tell(self, goes_on: Callable[[], None]) -> None:
        """Call `goes_on` when the wait is over, or now if it is over already."""
        if self._is_over:
            goes_on()
        else:
            self._tell = goes_on

    def end(self) -> None:
        """The wait is over. Nothing happens if it was before."""
        if self._is_over:
            return
        self._is_over = True
        if self._tell is not None:
            self._tell()


Steps = Generator[int | Elsewhere | Waiting, None, T]

# A write to the journal and to a segment takes as long as this many elements of a message.
APPEND_PIECES: Final = 20


class Pace(NamedTuple):
    """How much work is done in a row before other requests go first. Tests set less, so that others run in between."""

    # Pieces of work in one turn of the event loop: some milliseconds.
    pieces_per_turn: int = 500
    # If a transaction has more partitions and groups than this, its end is prepared in steps.
    unprepared_max: int = 50
    # Offsets that are committed in one entry: a few milliseconds.
    offsets_per_entry_max: int = 500


# Items that are sorted between two steps.
SORTED_AT_ONCE: Final = 500


def finish(steps: Steps[T]) -> T:
    """Do all the steps at once, for a caller that keeps no other request waiting."""
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
    """Work that takes long and releases the interpreter lock, so that the driver may run it in a thread; its result."""
    results: list[A] = []
    handed_over = Elsewhere(lambda: results.append(work()))
    yield handed_over
    handed_over.check()
    return results[0]


class Door:
    """Lets a limited number of pieces of work run at the same time. The others wait, first come, first served.

    Work that is inside must not wait at another door, or two could wait for each other for ever.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[Waiting] = deque()

    def inside(self, work: Steps[A]) -> Steps[A]:
        """Do this work when a place is free. The place becomes free again however the work ends."""
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
            # The request was given up. It is still in the queue, or it has just been given a place.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        if self._waiting:
            # The place passes to the first in the queue, so that no newcomer takes it.
            self._waiting.popleft().end()
        else:
            self._free += 1


def at_once(work: Callable[[], None]) -> Steps[None]:
    """Short work, as one step."""
    work()
    yield APPEND_PIECES


def in_order(items: Iterable[str]) -> Steps[list[str]]:
    """The items sorted, without duplicates. To sort a hundred thousand at once would take as long as 100 requests."""
    rest = iter(items)
    heaps: list[list[str]] = []
    while some := list(islice(rest, SORTED_AT_ONCE)):
        heaps.append(sorted(some))
        yield len(some)
    result: list[str] = []
    for item in merge(*heaps):
        if not result or result[-1] != item:
            result.append(item)
        yield 1
    return result


def each(items: Iterable[A], work: Callable[[A], T], pieces: int = 1) -> Steps[list[T]]:
    """The results of `work` for all items; each item counts as `pieces` pieces of work."""
    results = []
    for item in items:
        results.append(work(item))
        yield pieces
    return results
