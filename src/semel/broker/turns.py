"""Long work, a slice of it in each turn of the event loop, so that whoever else has something to do goes in between.

Requests and chores are `Steps`: they say how much they have done as they go on. What is short is done at once, in the
turn in which it came; of the rest one slice is done in each turn, in the order of a queue that goes round. So a turn
takes as long as one slice however much is asked for, and by however many. This file must never know what the work is.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from semel.core.steps import Steps

# Hears that the work is done, or what it broke off with.
Done = Callable[[Exception | None], None]


class Turns:
    """The work of one event loop that takes several turns."""

    def __init__(self, note_idle: Callable[[], None], pieces_per_turn: int) -> None:
        """`note_idle` is called when there is nothing more to do for now."""
        self.pieces_per_turn = pieces_per_turn
        # All pieces ever done, for those who do several short things one behind the other.
        self.pieces = 0
        self._queue: deque[tuple[Steps[None], Done]] = deque()
        self._note_idle = note_idle
        self._next: asyncio.Handle | None = None
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def begin(self, steps: Steps[None], done: Done) -> None:
        """Do this, as much of it as fits into one turn at once; `done` is called when all of it is."""
        if not self._advance(steps, done) and not self._stopped:
            self._queue.append((steps, done))
            self._go_on()

    def stop(self) -> None:
        """Leave all the rest undone, and tell nobody."""
        self._stopped = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._queue:
            self._queue.popleft()[0].close()

    def _go_on(self) -> None:
        if self._next is None and self._queue:
            self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._next = None
        steps, done = self._queue.popleft()
        try:
            if not self._advance(steps, done) and not self._stopped:
                self._queue.append((steps, done))
        finally:
            self._go_on()
        if not self._queue:
            self._note_idle()

    def _advance(self, steps: Steps[None], done: Done) -> bool:
        """Do one slice; whether that was the end of it."""
        left = self.pieces_per_turn
        try:
            for pieces in steps:
                self.pieces += pieces
                left -= pieces
                if left <= 0:
                    return False
        except Exception as error:
            done(error)
        else:
            done(None)
        return True
