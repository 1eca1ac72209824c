"""Tunes Python's garbage collector, in a process that is only a broker.

Python frees an object at once when its last reference is gone. The collector is only for cycles of references, and to
find them it examines all objects. So here all objects that it has examined once are frozen (`gc.freeze`), and are
examined again only when there are twice as many. This file must never be used in a process that belongs to the user: an
embedded broker leaves the collector alone.
"""

import gc
from asyncio import AbstractEventLoop
from typing import Any, Final

# In Python 3.14 the others look through a part of it each, so that nobody waits for long: only what `look` asks for is
# one of these.
OLDEST_GENERATION: Final = 2
# Python's own up to 3.12. With those of 3.13 the collector would have three times as much before it in one look.
THRESHOLDS: Final = (700, 10, 10)
LOOK_SECONDS: Final = 10.0
# Objects that are put aside, of which half may be garbage, before it is worth a look: some 40 MB.
ASIDE_MIN: Final = 400_000


class Garbage:
    """What is put aside in this process, and when it is looked through again."""

    def __init__(self, aside_min: int = ASIDE_MIN) -> None:
        self._looked_through = 0
        self._aside_min = aside_min
        # Whether anything was put aside since somebody looked.
        self._has_grown = False

    def begin(self) -> None:
        """Put aside all objects so far, and from now on every object that the collector finds in use."""
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        gc.callbacks.append(self._note_collection)

    def keep(self) -> None:
        """All objects so far will stay: the collector need not look through them."""
        gc.freeze()
        self._looked_through = gc.get_freeze_count()

    def look_from_time_to_time(self, loop: AbstractEventLoop) -> None:
        """Look now, and again and again as long as the loop runs."""
        self.look()
        loop.call_later(LOOK_SECONDS, self.look_from_time_to_time, loop)

    def look(self) -> None:
        """Have the collector look through all objects, if there are twice as many as last time."""
        # To count it takes a tenth of the time of looking through it.
        if self._has_grown and gc.get_freeze_count() > max(2 * self._looked_through, self._aside_min):
            gc.unfreeze()
            gc.collect()
            self._looked_through = gc.get_freeze_count()
        self._has_grown = False

    def _note_collection(self, phase: str, about: dict[str, Any]) -> None:
        if phase == "stop" and about["generation"] == OLDEST_GENERATION:
            gc.freeze()
            self._has_grown = True
