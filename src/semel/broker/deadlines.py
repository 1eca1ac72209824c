"""The earliest time at which each of many has something to do, where most times move to later ones all the while.

A member that is heard has its deadline moved, and nothing is done about that here: when the earlier time comes, whoever
is due looks at what is true by then, and notes the next one. So a sign of life costs nothing, however many there are.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

# When it is tried again what broke off: by then the disk may take it.
DUE_AGAIN_MS: Final = 1_000

N = TypeVar("N", str, int)


class Deadlines(Generic[N]):
    """A time for each name, at or before the one at which something has to be done."""

    def __init__(self) -> None:
        self._due_ms: dict[N, int] = {}
        # An item for each, and some that do not count any more because an earlier one came up.
        self._heap: list[tuple[int, N]] = []

    def note(self, name: N, deadline_ms: int | None) -> bool:
        """Whether this is earlier than what was noted of this name before."""
        if deadline_ms is None or deadline_ms >= self._due_ms.get(name, deadline_ms + 1):
            return False
        self._due_ms[name] = deadline_ms
        heappush(self._heap, (deadline_ms, name))
        return True

    def next_ms(self) -> int | None:
        """The earliest time of all."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> list[N]:
        """The names whose time has come, first come first; each stays due until it is forgotten."""
        due: dict[tuple[int, N], None] = {}
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            due[heappop(self._heap)] = None
        # They may not be done with: the disk may refuse what there is to do.
        for item in due:
            heappush(self._heap, item)
        return [name for _, name in due]

    def each_due(self, now_ms: int, work: Callable[[N], None], failed: Callable[[Exception], None]) -> None:
        """Do what is due for each of them, which notes the next time. Whoever it breaks off for is due again a little
        later, and holds up nobody else.
        """
        for name in self.due(now_ms):
            self.forget(name)
            try:
                work(name)
            except Exception as error:
                self.note(name, now_ms + DUE_AGAIN_MS)
                failed(error)

    def forget(self, name: N) -> None:
        """It is looked at, and what there is to do later will be noted anew."""
        del self._due_ms[name]
