"""Runs long work in slices, one in each turn of the event loop, so that other clients are served in between.

Requests and chores are `Steps`: they yield how much work they have done. Short work is done at once, in the turn in
which it came. Longer work is put into a queue, and each turn does one slice of the first in the queue, round-robin. So
a turn takes as long as one slice, however many clients ask for however much. `Elsewhere` work goes to a thread, and its
steps go on afterwards; `Waiting` steps go on when the wait ends. This file must never know what the work is.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from semel.wire.steps import Elsewhere, Steps

# Called with None when the work is done, or with its error.
Done = Callable[[Exception | None], None]
# Calls the first function in a thread, and then the second on the event loop.
RunElsewhere = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]


class Turns:
    """The long work of one event loop."""

    def __init__(self, note_idle: Callable[[], None], run_elsewhere: RunElsewhere, pieces_per_turn: int) -> None:
        """`note_idle` is called when there is no work left for now."""
        self.pieces_per_turn = pieces_per_turn
        # All pieces ever done, for a connection that serves several short requests in a row.
        self.pieces = 0
        self._queue: deque[tuple[Steps[None], Done]] = deque()
        self._note_idle = note_idle
        self._run_elsewhere = run_elsewhere
        # How many steps wait for a thread, or for other steps.
        self._away = 0
        self._next: asyncio.Handle | None = None
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._away

    def begin(self, steps: Steps[None], done: Done) -> None:
        """Do these steps, as many at once as fit into one turn; call `done` at the end."""
        if not self._advance(steps, done) and not self._stopped:
            self._queue.append((steps, done))
            self._go_on()

    def stop(self) -> None:
        """Drop all unfinished work, and call no `done`."""
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

    def _hand_over(self, work: Elsewhere, steps: Steps[None], done: Done) -> None:
        # A broker that stops waits for the thread, so the thread should not begin the work.
        self._run_elsewhere(lambda: None if self._stopped else work.do(), lambda _: self._come_back(steps, done))

    def _come_back(self, steps: Steps[None], done: Done) -> None:
        self._away -= 1
        if self._stopped:
            steps.close()
        else:
            self._queue.append((steps, done))
            self._go_on()

    def _advance(self, steps: Steps[None], done: Done) -> bool:
        """Do one slice; return whether the steps are done for now."""
        pieces_left = self.pieces_per_turn
        try:
            for pieces in steps:
                if isinstance(pieces, int):
                    self.pieces += pieces
                    pieces_left -= pieces
                    if pieces_left <= 0:
                        return False
                elif isinstance(pieces, Elsewhere):
                    self._away += 1
                    self._hand_over(pieces, steps, done)
                    return True
                else:
                    self._away += 1
                    pieces.tell(lambda: self._come_back(steps, done))
                    return True
        except Exception as error:
            done(error)
        else:
            done(None)
        return True
