"""Tunes Python's garbage collector, in a process that is only a broker.

Python frees an object at once when its last reference is gone. The collector is only for cycles of references, and to
find them it examines all objects. So this module freezes all objects that the collector has examined once
(`gc.freeze`), and has it examine them again only when there are twice as many. This file must never be used in a
process that belongs to the user: an embedded broker leaves the collector alone.
"""

import gc
from asyncio import AbstractEventLoop
from typing import Any, Final

# In Python 3.14 an automatic collection examines only a part of this generation; only `look` examines all of it.
OLDEST_GENERATION: Final = 2
# Python's thresholds up to 3.12. With those of 3.13 the collector would examine three times as many objects at once.
THRESHOLDS: Final = (700, 10, 10)
LOOK_SECONDS: Final = 10.0
# The number of frozen objects, half of which may be garbage, from which a collection is worth its time: some 40 MB.
ASIDE_MIN: Final = 400_000


class Garbage:
    """The frozen objects of this process, and when the collector examines them again."""

    def __init__(self, aside_min: int = ASIDE_MIN) -> None:
        self._looked_through = 0
        self._aside_min = aside_min
        # Whether objects were frozen since the last full collection.
        self._has_grown = False

    def begin(self) -> None:
        """Freeze all objects so far, and from now on every object that the collector finds in use."""
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        gc.callbacks.append(self._note_collection)

    def keep(self) -> None:
        """Freeze all objects so far, because they will stay, and the collector need not examine them."""
        gc.freeze()
        self._looked_through = gc.get_freeze_count()

    def look_from_time_to_time(self, loop: AbstractEventLoop) -> None:
        """Look now, and then regularly as long as the loop runs."""
        self.look()
        loop.call_later(LOOK_SECONDS, self.look_from_time_to_time, loop)

    def look(self) -> None:
        """Have the collector examine all objects, if there are twice as many as last time."""
        # Counting the objects takes a tenth of the time of examining them.
        if self._has_grown and gc.get_freeze_count() > max(2 * self._looked_through, self._aside_min):
            gc.unfreeze()
            gc.collect()
            self._looked_through = gc.get_freeze_count()
        self._has_grown = False

    def _note_collection(self, phase: str, about: dict[str, Any]) -> None:
        if phase == "stop" and about["generation"] == OLDEST_GENERATION:
            gc.freeze()
            self._has_grown = True
