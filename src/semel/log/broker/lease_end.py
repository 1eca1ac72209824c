"""What a broker on a store does for its clients when its lease ends.

It has none from then on, before any other broker can be active: each of them would wait here for an answer, and ask
nobody else. Two leases later another broker, if there is one, has them. If this one knows of none, it lets clients in
again, and tells them that no partition has a leader and no group a coordinator, which is more than a refused connection
says. Nothing here may wait for the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from semel.log.broker.alone import Alone
from semel.log.broker.connections import Connections
from semel.log.broker.doors import Doors
from semel.log.broker.events import Events
from semel.log.broker.metrics import Metrics
from semel.log.broker.role import Role

# Another broker waits for one lease, and needs a moment to take over.
LEASES: Final = 2


class LeaseEnd:
    """The clients of one broker, at each end of its lease."""

    def __init__(
        self,
        role: Role | Alone,
        connections: Connections,
        doors: Doors,
        *,
        metrics: Metrics,
        events: Events,
        let_in: Callable[[], Awaitable[None]],
        fail: Callable[[BaseException], None],
    ) -> None:
        # Whether the lease has ended, and this broker had no clients any more before another one could be active.
        self.was_in_time = False
        self._role = role
        self._connections = connections
        self._doors = doors
        self._metrics = metrics
        self._events = events
        self._let_in = let_in
        self._fail = fail
        self._opening: asyncio.Task[None] | None = None

    def give_up_clients(self, is_in_time: bool) -> None:
        """The lease has ended; `is_in_time` says that no other broker can be active yet."""
        self.was_in_time = is_in_time
        self._metrics.lost_leases += 1
        reason = "the store has not renewed the lease of this broker, so another one may take over"
        self._events.tell(logging.ERROR, "gave_up_clients", reason=reason, connections=len(self._connections))
        self._connections.admit_no_more()
        self._connections.abort()
        self._doors.close()
        self._opening = asyncio.get_running_loop().create_task(self._open_without_lease())

    async def take_clients_again(self) -> None:
        """The lease is renewed, and no other broker has been active meanwhile."""
        self.was_in_time = False
        self.stop()
        if not self._doors.are_open:
            await self._let_in()
        self._events.tell(logging.INFO, "takes_clients_again")

    def stop(self) -> None:
        """Let nobody in without a lease."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    async def _open_without_lease(self) -> None:
        await asyncio.sleep(LEASES * self._role.lease_seconds)
        try:
            if not self._role.standby_ids:
                await self._let_in()
        except OSError as error:
            self._fail(error)
