"""What a broker does from time to time though nobody asks for it: it keeps house.

Each chore is taken in steps, as requests are, and never twice at once. If one breaks off it is told and tried at
another time. This file must never answer anybody.
"""

import logging
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from semel.broker import expiry
from semel.core.steps import Steps, at_once

if TYPE_CHECKING:
    from semel.broker.broker import Broker

HOUSEKEEPING_SECONDS: Final = 5.0
# How often segments are looked through for what has become too old or too much, as in Apache Kafka.
RETENTION_SECONDS: Final = 300.0


class Chores:
    """The chores of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._timers: list[TimerHandle] = []

    def begin(self) -> None:
        """Do each of them whenever its time has come."""
        broker = self._broker
        self._every(HOUSEKEEPING_SECONDS, self._keep_house)
        self._every(RETENTION_SECONDS, lambda: broker.log.retain(broker.now_ms()))
        self._every(broker.compactor.look_seconds, lambda: at_once(broker.compactor.look))
        self._every(expiry.FORGET_SECONDS, lambda: expiry.forget_silent_transactional_ids(broker))
        self._every(expiry.EXPIRY_SECONDS, lambda: expiry.forget_old_offsets(broker))

    def stop(self) -> None:
        """Begin none any more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def attempt(self, job: Callable[[], None]) -> None:
        """Do what nobody asked for and nobody hears of; if it breaks off it is told here, and tried at another time."""
        self._broker.turns.begin(at_once(job), self.note_end)

    def _every(self, seconds: float, job: Callable[[], Steps[None]]) -> None:
        is_under_way = False

        def steps() -> Steps[None]:
            yield from job()

        def note_end(error: Exception | None) -> None:
            nonlocal is_under_way
            is_under_way = False
            self.note_end(error)

        def run() -> None:
            nonlocal is_under_way
            # First of all: whatever becomes of it this time, there is a next one.
            self._timers[slot] = get_running_loop().call_later(seconds, run)
            if not is_under_way:
                is_under_way = True
                self._broker.turns.begin(steps(), note_end)

        slot = len(self._timers)
        self._timers.append(get_running_loop().call_later(seconds, run))

    def note_end(self, error: Exception | None) -> None:
        """A chore has come to its end, or broke off."""
        if isinstance(error, OSError):
            self._broker.storage_error(error)
        elif error is not None:
            self._broker.tell_of_slip("housekeeping_failed", error)
        self._broker.follow_journal()

    def _keep_house(self) -> Steps[None]:
        """End connections that hold things up, forget what has become too old, and checkpoint if it is time."""
        broker = self._broker
        now = broker.uptime()
        for connection in broker.connections():
            connection.look()
            silent = now - connection.last_progress_at
            if connection.is_stalled and silent > broker.limits.stalled_connection_ms_max / 1000:
                reason = f"no progress for {silent:.0f} s in the middle of a message"
                broker.events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=reason)
                connection.abort()
            elif silent > broker.limits.idle_connection_ms_max / 1000 and not connection.is_waiting:
                connection.close()
            yield 1
        broker.receive_room.offer()
        yield from expiry.forget_silent_producers(broker)
        yield from broker.look_for_space()
