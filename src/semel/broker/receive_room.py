"""The memory for large requests on their way in, which all connections share.

A connection asks before it enlarges its buffer. Where there is no room, it waits unread until others have given some
back; but one connection at a time may go beyond, so that not all of them wait for each other for ever.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.broker.connection import Connection


class ReceiveRoom:
    """How much of it is taken, by whom beyond what there is, and who waits."""

    def __init__(self, bytes_max: int, connections: Iterable["Connection"]) -> None:
        """`connections` are those that there are at any time."""
        self.taken_bytes = 0
        # The one connection that may receive a request though there is no room.
        self.beyond: Connection | None = None
        self._bytes_max = bytes_max
        self._connections = connections
        # In the order in which they came, so that the same events have the same outcome.
        self._waiting: dict[Connection, None] = {}

    def may_take(self, connection: "Connection", more_bytes: int) -> bool:
        """Whether a connection may enlarge its buffer; if not, it is told when it may try again."""
        if self.taken_bytes + more_bytes > self._bytes_max:
            for other in self._connections:
                other.give_back_buffer()
        if self.taken_bytes + more_bytes <= self._bytes_max:
            return True
        if self.beyond is None:
            self.beyond = connection
        if self.beyond is connection:
            return True
        self._waiting[connection] = None
        return False

    def note_returned(self) -> None:
        """A connection has given back some of its buffer."""
        if self._waiting:
            asyncio.get_running_loop().call_soon(self.offer)

    def forget(self, connection: "Connection") -> None:
        """A connection has ended."""
        self._waiting.pop(connection, None)
        if self.beyond is connection:
            self.beyond = None
        self.offer()

    def offer(self) -> None:
        """Have everybody who waits try again."""
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.room_may_be_there()
