"""The open connections of a broker: it lets clients in, and ends all connections when the broker stops."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from semel.log.broker.classic_groups import ClassicGroupCoordinator
from semel.log.broker.connection import Connection
from semel.log.broker.doors import Doors
from semel.log.broker.events import Events
from semel.log.broker.limits import Limits
from semel.log.broker.metrics import Metrics
from semel.log.broker.share_groups import ShareGroupCoordinator
from semel.log.broker.throttle import Throttle
from semel.log.places import THIS_MACHINE, Places
from semel.wire.errors import ProtocolError
from semel.wire.hosts import is_loopback

# At most this part of all places is kept for one listener, or for this machine.
KEPT_PART: Final = 20


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
        share_groups: ShareGroupCoordinator,
        note_progress: Callable[[], None],
    ) -> None:
        """`note_progress` is called when a connection has ended."""
        self._limits = limits
        self._metrics = metrics
        self._events = events
        self._doors = doors
        self._throttle = throttle
        self._groups = groups
        self._share_groups = share_groups
        self._note_progress = note_progress
        # In the order in which they came, so that the same events have the same outcome.
        self._open: dict[Connection, None] = {}
        self._places: Places[Connection] = Places(
            limits.connections_max,
            lambda connection: connection.is_resting,
            kept=min(limits.connections_kept, limits.connections_max // KEPT_PART),
            groups=(THIS_MACHINE, *doors.listener_names),
        )
        self._admits = True

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        """The connections that are open now; some may end during the iteration."""
        return iter(list(self._open))

    def enter(self, connection: Connection) -> bool:
        """A client has connected; False if there is no place for it, or the broker stops."""
        if not (self._admits and self._throttle.admits(connection) and self._has_place(connection)):
            self._metrics.connections_refused += 1
            self._events.tell(logging.WARNING, "connection_refused", peer=connection.peer, connections=len(self._open))
            return False
        self._open[connection] = None
        self._metrics.connections_opened += 1
        self._metrics.connections_open += 1
        connection.number = self._metrics.connections_opened
        return True

    def _has_place(self, connection: Connection) -> bool:
        """Give a connection its place; another one may be closed for it."""
        host = connection.client_host
        groups = (THIS_MACHINE, connection.listener.name) if is_loopback(host) else (connection.listener.name,)
        for places in (self._doors.strangers, self._places) if connection.is_unknown else (self._places,):
            is_let_in, leaver = places.admit(connection, host, groups)
            if leaver is not None:
                self._displace(leaver)
            if not is_let_in:
                self._give_up_places(connection)
                return False
        return True

    def _displace(self, connection: Connection) -> None:
        self._events.tell(
            logging.WARNING, "connection_closed", peer=connection.peer, reason="it was silent, and its place is needed"
        )
        self._give_up_places(connection)
        connection.abort()

    def _give_up_places(self, connection: Connection) -> None:
        self._doors.strangers.leave(connection)
        self._places.leave(connection)

    def note_heard(self, connection: Connection) -> None:
        """A connection has sent its first request."""
        for places in (self._doors.strangers, self._places):
            if connection in places:
                places.note_heard(connection)

    def note_resting(self, connection: Connection) -> None:
        """A connection was silent for long."""
        for places in (self._doors.strangers, self._places):
            if connection in places:
                places.note_resting(connection)

    def leave(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self._open:
            del self._open[connection]
            self._give_up_places(connection)
            self._metrics.connections_open -= 1
            self._throttle.forget(connection)
            self._groups.connection_lost(connection.number)
            self._share_groups.end_sessions_of(connection.number)
        self._note_progress()

    def break_off(self, connection: Connection, error: ProtocolError) -> None:
        """A client has sent an invalid request."""
        self._metrics.protocol_errors += 1
        self._events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=error)
        connection.abort()

    def admit_no_more(self) -> None:
        self._admits = False

    def admit_again(self) -> None:
        self._admits = True

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
