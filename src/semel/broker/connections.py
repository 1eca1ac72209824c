"""The open connections of a broker: it lets clients in, and ends all connections when the broker stops."""

import asyncio
import logging
from collections.abc import Callable, Iterator

from semel.broker.classic_groups import ClassicGroupCoordinator
from semel.broker.connection import Connection
from semel.broker.doors import Doors
from semel.broker.events import Events
from semel.broker.limits import Limits
from semel.broker.metrics import Metrics
from semel.broker.throttle import Throttle
from semel.wire.errors import ProtocolError


class Connections:
    """The connections of one broker."""

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        events: Events,
        doors: Doors,
        throttle: Throttle,
        groups: ClassicGroupCoordinator,
        note_progress: Callable[[], None],
    ) -> None:
        """`note_progress` is called when a connection has ended."""
        self._limits = limits
        self._metrics = metrics
        self._events = events
        self._doors = doors
        self._throttle = throttle
        self._groups = groups
        self._note_progress = note_progress
        # In the order in which they came, so that the same events have the same outcome.
        self._open: dict[Connection, None] = {}
        self._admits = True

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        """The connections that are open now; some may end during the iteration."""
        return iter(list(self._open))

    def enter(self, connection: Connection) -> bool:
        """A client has connected; False if there are too many connections, or the broker stops."""
        count = len(self._open)
        has_space = count < self._limits.connections_max and self._doors.has_space(connection)
        if not (has_space and self._admits and self._throttle.admits(connection)):
            self._metrics.connections_refused += 1
            self._events.tell(logging.WARNING, "connection_refused", peer=connection.peer, connections=count)
            return False
        self._open[connection] = None
        self._doors.enter(connection)
        self._metrics.connections_opened += 1
        self._metrics.connections_open += 1
        connection.number = self._metrics.connections_opened
        return True

    def leave(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self._open:
            del self._open[connection]
            self._doors.note_known(connection)
            self._metrics.connections_open -= 1
            self._throttle.forget(connection)
            self._groups.connection_lost(connection.number)
        self._note_progress()

    def break_off(self, connection: Connection, error: ProtocolError) -> None:
        """A client has sent an invalid request."""
        self._metrics.protocol_errors += 1
        self._events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=error)
        connection.abort()

    def admit_no_more(self) -> None:
        self._admits = False

    def stop_serving(self) -> None:
        """Begin no more requests."""
        for connection in self:
            connection.stop_serving()

    def close(self) -> None:
        """Close each connection when all that was written to it is sent."""
        for connection in self:
            connection.close()

    def abort(self) -> None:
        """Close each connection at once."""
        for connection in self:
            connection.abort()


class Progress:
    """The progress of one broker towards its end: it lets the broker wait until its clients have their answers."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds; it is checked at once, and at every `note`."""
        while not condition():
            self._next = asyncio.get_running_loop().create_future()
            await self._next

    def note(self) -> None:
        """Work was done, answers were sent, or a connection has ended."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
