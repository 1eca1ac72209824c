"""Long work, a slice of it in each turn of the event loop, so that whoever else has something to do goes in between.

Requests and chores are `Steps`: they say how much they have done as they go on. What is short is done at once, in the
turn in which it came; of the rest one slice is done in each turn, in the order of a queue that goes round. So a turn
takes as long as one slice however much is asked for, and by however many. What they hand over to be done elsewhere goes
into a thread, and the steps go on when it is done. It may have made something large, which stays until the steps end;
so only a few at a time may have something done, and the others wait. This file must never know what the work is.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from semel.core.steps import Elsewhere, Steps

# Hears that the work is done, or what it broke off with.
Done = Callable[[Exception | None], None]
# Does the first in a thread, and then the second on the event loop.
RunElsewhere = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]

# Steps that may have in memory what was made elsewhere, at once: of what clients compress it is 64 MiB each.
HOLDERS_MAX: Final = 4


class Turns:
    """The work of one event loop that takes several turns."""

    def __init__(self, note_idle: Callable[[], None], run_elsewhere: RunElsewhere, pieces_per_turn: int) -> None:
        """`note_idle` is called when there is nothing more to do for now."""
        self.pieces_per_turn = pieces_per_turn
        # All pieces ever done, for those who do several short things one behind the other.
        self.pieces = 0
        self._queue: deque[tuple[Steps[None], Done]] = deque()
        self._note_idle = note_idle
        self._run_elsewhere = run_elsewhere
        # How many go on when something is done elsewhere.
        self._away = 0
        # Those that had something done elsewhere and have not ended, and what others wait to have done.
        self._holders: set[Steps[None]] = set()
        self._waiting: deque[tuple[Elsewhere, Steps[None], Done]] = deque()
        self._next: asyncio.Handle | None = None
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._away

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
        while self._waiting:
            self._waiting.popleft()[1].close()

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

    def _hand_over(self, work: Elsewhere, steps: Steps[None], done: Done) -> None:
        if steps not in self._holders and len(self._holders) >= HOLDERS_MAX:
            self._waiting.append((work, steps, done))
            return
        self._holders.add(steps)
        # Whoever stops waits for the thread, and nobody would want what is still to be done there.
        self._run_elsewhere(lambda: None if self._stopped else work.do(), lambda _: self._come_back(steps, done))

    def _let_go(self, steps: Steps[None]) -> None:
        """These steps have ended, and whatever they had in memory is gone."""
        if steps in self._holders:
            self._holders.remove(steps)
            if self._waiting:
                self._hand_over(*self._waiting.popleft())

    def _come_back(self, steps: Steps[None], done: Done) -> None:
        self._away -= 1
        if self._stopped:
            steps.close()
        else:
            self._queue.append((steps, done))
            self._go_on()

    def _advance(self, steps: Steps[None], done: Done) -> bool:
        """Do one slice; whether that was all there is to do for now."""
        left = self.pieces_per_turn
        try:
            for pieces in steps:
                if isinstance(pieces, Elsewhere):
                    self._away += 1
                    self._hand_over(pieces, steps, done)
                    return True
                self.pieces += pieces
                left -= pieces
                if left <= 0:
                    return False
        except Exception as error:
            self._let_go(steps)
            done(error)
        else:
            self._let_go(steps)
            done(None)
        return True
