"""The receive buffers of connections, and the limit on the memory that they take together.

Before a buffer grows for a large request, it asks whether there is memory. If there is not, its connection stops
reading until others have released some. But one connection at a time may exceed the limit, so that they never wait for
each other for ever. When half of the memory is taken, an address gets more only while it has taken less than is still
free: so a client that begins large requests and does not end them keeps no other address waiting. This file must never
know what a request says.
"""

import asyncio
from collections import Counter
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
    """The memory of all buffers together, the one that may exceed the limit, and those that wait."""

    def __init__(self, bytes_max: int) -> None:
        self.taken_bytes = 0
        self._of_address: Counter[str] = Counter()
        # The one buffer that may exceed the limit.
        self.beyond: ReceiveBuffer | None = None
        self._bytes_max = bytes_max
        # In the order of arrival, so that a simulation is deterministic.
        self._buffers: dict[ReceiveBuffer, None] = {}
        self._waiting: dict[ReceiveBuffer, None] = {}

    def join(self, buffer: "ReceiveBuffer", address: str) -> None:
        """Add the buffer of a new connection, whose client has this address."""
        buffer.address = address
        self._buffers[buffer] = None

    def leave(self, buffer: "ReceiveBuffer") -> None:
        """Remove the buffer of a closed connection."""
        self._buffers.pop(buffer, None)
        self._waiting.pop(buffer, None)
        if self.beyond is buffer:
            self.beyond = None
        self.offer()

    def may_take(self, buffer: "ReceiveBuffer", more_bytes: int) -> bool:
        """Whether a buffer may grow; if not, its connection is called later to try again."""
        if not self._has_space(buffer, more_bytes):
            for other in self._buffers:
                other.shrink_if_unused()
        if self._has_space(buffer, more_bytes):
            return True
        if self.beyond is None:
            self.beyond = buffer
        if self.beyond is buffer:
            return True
        self._waiting[buffer] = None
        return False

    def _has_space(self, buffer: "ReceiveBuffer", more_bytes: int) -> bool:
        """Whether there is space for these bytes, and the address may have them. The buffer that may exceed the limit
        takes no space from the others: its request may never end.
        """
        taken_bytes = self.taken_bytes - (0 if self.beyond is None else self.beyond.large_bytes)
        free = self._bytes_max - taken_bytes - more_bytes
        return free >= 0 and (2 * free >= self._bytes_max or self._of_address[buffer.address] + more_bytes <= free)

    def note_change(self, buffer: "ReceiveBuffer", more_bytes: int) -> None:
        """A buffer has grown by `more_bytes`, or shrunk if that is negative."""
        self.taken_bytes += more_bytes
        self._of_address[buffer.address] += more_bytes
        if not self._of_address[buffer.address]:
            del self._of_address[buffer.address]
        if more_bytes < 0 and self._waiting:
            asyncio.get_running_loop().call_soon(self.offer)

    def offer(self) -> None:
        """Have all waiting connections try again."""
        waiting, self._waiting = self._waiting, {}
        for buffer in waiting:
            buffer.try_again()


class ReceiveBuffer:
    """The bytes that a connection has received and not served yet, from `begin` to `end`."""

    __slots__ = ("_is_in_use", "_memory", "_view", "address", "begin", "bytes", "end", "is_too_small", "try_again")

    def __init__(self, memory: ReceiveMemory, is_in_use: Callable[[], bool], try_again: Callable[[], None]) -> None:
        """`is_in_use` says whether a handler uses views of the bytes; `try_again` makes the connection go on."""
        self._memory = memory
        self._is_in_use = is_in_use
        self.try_again = try_again
        # Set when the client has connected.
        self.address = ""
        self.bytes = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self.bytes)
        self.begin = 0
        self.end = 0
        # Whether the next frame does not fit, and other buffers take the memory for it.
        self.is_too_small = False

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def large_bytes(self) -> int:
        """The bytes that count towards the limit on all buffers."""
        return max(len(self.bytes) - RECEIVE_BYTES, 0)

    def free(self) -> memoryview:
        """The free part of the buffer, for receiving."""
        return self._view[self.end :]

    def take(self, size: int) -> memoryview:
        """A view of the first `size` bytes, which count as served from now on."""
        self.begin += size
        return self._view[self.begin - size : self.begin]

    def fit(self, size: int) -> None:
        """Make space for a frame of `size` bytes from `begin` on, and for receiving more."""
        self.is_too_small = False
        unread_size = self.end - self.begin
        if self._memory.beyond is self and (self.begin > 0 or unread_size == 0):
            self._memory.beyond = None
            self._replace(max(RECEIVE_BYTES, unread_size))
        if unread_size == 0:
            self.begin = self.end = 0
            if len(self.bytes) > RECEIVE_BYTES_KEPT_MAX:
                self._replace(RECEIVE_BYTES)
            return
        if self.begin + size <= len(self.bytes):
            return
        if size <= len(self.bytes):
            self.bytes[:unread_size] = self.bytes[self.begin : self.end]
            self.begin, self.end = 0, unread_size
        elif self.end == len(self.bytes) or self.begin:
            # The buffer doubles as bytes arrive, so a client that only announces a large size gets no memory.
            new_size = min(max(size, RECEIVE_BYTES), max(2 * len(self.bytes), 2 * unread_size))
            if self._memory.may_take(self, new_size - len(self.bytes)):
                self._replace(new_size)
            else:
                self.is_too_small = True

    def shrink_if_unused(self) -> None:
        """Shrink an empty buffer to the small size, because others need the memory."""
        if not len(self) and not self._is_in_use() and len(self.bytes) > RECEIVE_BYTES:
            self._replace(RECEIVE_BYTES)

    def release(self) -> None:
        """Release the memory: the connection was lost, and no handler uses the bytes."""
        large_bytes = self.large_bytes
        self.bytes = bytearray()
        self._view = memoryview(self.bytes)
        self._memory.note_change(self, -large_bytes)
        # The callbacks refer to the connection, and it to this buffer: the cycle would keep both alive.
        self._is_in_use, self.try_again = _never, _nothing

    def _replace(self, size: int) -> None:
        before, unread_size = self.large_bytes, len(self)
        self.bytes = bytearray(size)
        self.bytes[:unread_size] = self._view[self.begin : self.end]
        self._view = memoryview(self.bytes)
        self.begin, self.end = 0, unread_size
        self._memory.note_change(self, self.large_bytes - before)
