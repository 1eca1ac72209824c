"""The memory for requests on their way in: each connection's buffer, and what all of them may take together.

A buffer grows as the bytes of a large request arrive, and asks first. Where too much is taken, its connection waits
unread until others have given some back; but one connection at a time may go beyond the limit, so that not all of them
wait for each other for ever. This file must never know what a request says.
"""

import asyncio
from collections.abc import Callable
from typing import Final

RECEIVE_BYTES: Final = 64 * 1024
# A buffer that had to grow for a large request is kept for the next ones, up to this size.
RECEIVE_BYTES_KEPT_MAX: Final = 2 * 1024 * 1024


def _never() -> bool:
    return False


def _nothing() -> None:
    """Does nothing, in place of a lost connection's callbacks."""


class ReceiveMemory:
    """How much all buffers have taken, which of them goes beyond the limit, and which wait."""

    def __init__(self, bytes_max: int) -> None:
        self.taken_bytes = 0
        # The one buffer that may take a request though too much is taken already.
        self.beyond: ReceiveBuffer | None = None
        self._bytes_max = bytes_max
        # In the order in which they came, so that the same events have the same outcome.
        self._buffers: dict[ReceiveBuffer, None] = {}
        self._waiting: dict[ReceiveBuffer, None] = {}

    def join(self, buffer: "ReceiveBuffer") -> None:
        """A connection has begun."""
        self._buffers[buffer] = None

    def leave(self, buffer: "ReceiveBuffer") -> None:
        """A connection has ended."""
        self._buffers.pop(buffer, None)
        self._waiting.pop(buffer, None)
        if self.beyond is buffer:
            self.beyond = None
        self.offer()

    def may_take(self, buffer: "ReceiveBuffer", more_bytes: int) -> bool:
        """Whether a buffer may grow; if not, its connection is told when to try again."""
        if self.taken_bytes + more_bytes > self._bytes_max:
            for other in self._buffers:
                other.shrink_if_unused()
        if self.taken_bytes + more_bytes <= self._bytes_max:
            return True
        if self.beyond is None:
            self.beyond = buffer
        if self.beyond is buffer:
            return True
        self._waiting[buffer] = None
        return False

    def note_change(self, more_bytes: int) -> None:
        """A buffer takes `more_bytes` more, or less if that is negative."""
        self.taken_bytes += more_bytes
        if more_bytes < 0 and self._waiting:
            asyncio.get_running_loop().call_soon(self.offer)

    def offer(self) -> None:
        """Have all connections that wait try again."""
        waiting, self._waiting = self._waiting, {}
        for buffer in waiting:
            buffer.try_again()


class ReceiveBuffer:
    """The bytes of one connection that have arrived and were not served yet, from `begin` to `end`."""

    __slots__ = ("_is_in_use", "_memory", "_view", "begin", "bytes", "end", "is_too_small", "try_again")

    def __init__(self, memory: ReceiveMemory, is_in_use: Callable[[], bool], try_again: Callable[[], None]) -> None:
        """`is_in_use` says whether a handler works on views of the bytes; `try_again` has the connection go on."""
        self._memory = memory
        self._is_in_use = is_in_use
        self.try_again = try_again
        self.bytes = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self.bytes)
        self.begin = 0
        self.end = 0
        # Whether the next frame does not fit and the memory for it is taken by others.
        self.is_too_small = False

    def __len__(self) -> int:
        return self.end - self.begin

    def free(self) -> memoryview:
        """Where to receive into."""
        return self._view[self.end :]

    def take(self, size: int) -> memoryview:
        """A view of the first bytes, which are served with that."""
        self.begin += size
        return self._view[self.begin - size : self.begin]

    def fit(self, size: int) -> None:
        """Make room for a frame of `size` bytes behind `begin`, and for more bytes to receive."""
        self.is_too_small = False
        kept = len(self)
        if self._memory.beyond is self and (self.begin > 0 or kept == 0):
            self._memory.beyond = None
            self._replace(max(RECEIVE_BYTES, kept))
        if kept == 0:
            self.begin = self.end = 0
            if len(self.bytes) > RECEIVE_BYTES_KEPT_MAX:
                self._replace(RECEIVE_BYTES)
            return
        if self.begin + size <= len(self.bytes):
            return
        if size <= len(self.bytes):
            self.bytes[:kept] = self.bytes[self.begin : self.end]
            self.begin, self.end = 0, kept
        elif self.end == len(self.bytes) or self.begin:
            # The buffer doubles as the bytes arrive: a size that is merely announced costs nothing.
            grown = min(max(size, RECEIVE_BYTES), max(2 * len(self.bytes), 2 * kept))
            if self._memory.may_take(self, grown - len(self.bytes)):
                self._replace(grown)
            else:
                self.is_too_small = True

    def shrink_if_unused(self) -> None:
        """Others need the memory: keep no more than a small buffer where nothing is in it."""
        if not len(self) and not self._is_in_use() and len(self.bytes) > RECEIVE_BYTES:
            self._replace(RECEIVE_BYTES)

    def release(self) -> None:
        """The connection was lost, and no handler works on the bytes any more."""
        size = len(self.bytes)
        self.bytes = bytearray()
        self._view = memoryview(self.bytes)
        self._memory.note_change(-max(size - RECEIVE_BYTES, 0))
        # They know the connection, which knows this buffer: in a circle, both would stay.
        self._is_in_use, self.try_again = _never, _nothing

    def _replace(self, size: int) -> None:
        old, kept = self.bytes, len(self)
        self.bytes = bytearray(size)
        self.bytes[:kept] = self._view[self.begin : self.end]
        self._view = memoryview(self.bytes)
        self.begin, self.end = 0, kept
        self._memory.note_change(max(size - RECEIVE_BYTES, 0) - max(len(old) - RECEIVE_BYTES, 0))
