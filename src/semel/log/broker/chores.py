"""The regular chores of a broker: it closes stalled connections, frees disk space, and forgets producers, transactional
ids and offsets that were not used for long.

Each chore runs in steps, like a request, and never twice at the same time. If a chore fails, the error is logged, and
the chore runs again at its next time. Everything forgotten is logged and counted: a client that comes back later counts
as new, and an operator must be able to see why. This file must never answer a client.
"""

import logging
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from semel.log.broker.compactor import Compactor
from semel.log.broker.connections import Connections
from semel.log.broker.doors import Doors
from semel.log.broker.receive_buffer import ReceiveMemory
from semel.log.broker.runtime import Runtime
from semel.log.core.entries import GroupDeleted
from semel.log.storage import aside
from semel.wire.steps import APPEND_PIECES, Steps, at_once

HOUSEKEEPING_SECONDS: Final = 5.0
# How often retention looks for segments that are too old or too large together, as in Apache Kafka.
RETENTION_SECONDS: Final = 300.0
# How often the broker looks for expired offsets, as in Apache Kafka (offsets.retention.check.interval.ms).
EXPIRY_SECONDS: Final = 600.0
# How often it looks for expired transactional ids, as in Apache Kafka.
FORGET_SECONDS: Final = 3600.0
# When transactional ids are forgotten, the event names this many of them.
NAMED_MAX: Final = 10


class Chores:
    """The chores of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        compactor: Compactor,
        memory: ReceiveMemory,
        connections: Connections,
        doors: Doors,
    ) -> None:
        self._doors = doors
        self._runtime = runtime
        self._compactor = compactor
        self._memory = memory
        self._connections = connections
        self._timers: list[TimerHandle] = []

    def begin(self) -> None:
        """Set a timer for each chore of a broker that serves clients, as a standby does."""
        self._every(HOUSEKEEPING_SECONDS, self._look_at_connections)
        self._every(HOUSEKEEPING_SECONDS, lambda: at_once(self._doors.look_at_credentials))

    def begin_on_log(self) -> None:
        """Set a timer for each chore that changes the log: these are for the active broker alone."""
        runtime, compactor = self._runtime, self._compactor
        self._every(HOUSEKEEPING_SECONDS, lambda: keep_house(runtime))
        self._every(RETENTION_SECONDS, lambda: runtime.log.retain(runtime.clock.now_ms()))
        self._every(compactor.look_seconds, lambda: at_once(compactor.look))
        self._every(FORGET_SECONDS, lambda: forget_silent_transactional_ids(runtime))
        self._every(EXPIRY_SECONDS, lambda: forget_old_offsets(runtime))
        self._every(FORGET_SECONDS, lambda: remove_set_aside(runtime))

    def stop(self) -> None:
        """Begin no more chores."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _every(self, seconds: float, job: Callable[[], Steps[None]]) -> None:
        is_under_way = False

        def steps() -> Steps[None]:
            yield from job()

        def note_end(error: Exception | None) -> None:
            nonlocal is_under_way
            is_under_way = False
            self._runtime.note_end(error)

        def run() -> None:
            nonlocal is_under_way
            # This comes first, so that there is a next run even if this one fails.
            self._timers[slot] = get_running_loop().call_later(seconds, run)
            if not is_under_way:
                is_under_way = True
                self._runtime.turns.begin(steps(), note_end)

        slot = len(self._timers)
        self._timers.append(get_running_loop().call_later(seconds, run))

    def _look_at_connections(self) -> Steps[None]:
        """Close stalled and idle connections, and those that have not logged in in time."""
        runtime = self._runtime
        limits, now, now_ms = runtime.limits, runtime.clock.uptime(), runtime.clock.steady_ms()
        for connection in self._connections:
            connection.look()
            silent = now - connection.last_progress_at
            if connection.is_stalled and silent > limits.stalled_connection_ms_max / 1000:
                reason = f"no progress for {silent:.0f} s in the middle of a message"
                runtime.events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=reason)
                connection.abort()
            elif connection.is_unknown and now_ms - connection.began_ms > limits.login_ms_max:
                reason = f"no login after {(now_ms - connection.began_ms) // 1000} s"
                runtime.events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=reason)
                connection.abort()
            elif silent > limits.idle_connection_ms_max / 1000 and not connection.is_waiting:
                connection.close()
            if connection.is_resting:
                self._connections.note_resting(connection)
            yield 1
        self._memory.offer()


def keep_house(runtime: Runtime) -> Steps[None]:
    """Forget silent producers, and write a checkpoint if it is time."""
    yield from forget_silent_producers(runtime)
    yield from runtime.pump.look_for_space()


def forget_silent_producers(runtime: Runtime) -> Steps[None]:
    count = yield from runtime.log.forget(runtime.clock.now_ms(), runtime.clock.steady_ms())
    if count:
        runtime.metrics.forgotten_producers += count
        runtime.events.tell(logging.INFO, "producers_forgotten", producers=count)


def forget_silent_transactional_ids(runtime: Runtime) -> Steps[None]:
    expiration_ms = runtime.limits.transactional_id_expiration_ms
    rules, now_ms = runtime.log.state.transaction_rules, _counted_now_ms(runtime, expiration_ms)
    for names in rules.parts():
        entry = rules.decide_forget(names, now_ms, expiration_ms)
        if entry is not None:
            runtime.log.commit(replace(entry, at_ms=runtime.clock.now_ms()))
            forgotten = entry.transactional_ids
            runtime.metrics.forgotten_transactional_ids += len(forgotten)
            first_names = ", ".join(forgotten[:NAMED_MAX])
            runtime.events.tell(
                logging.INFO, "transactional_ids_forgotten", transactional_ids=len(forgotten), named=first_names
            )
        yield APPEND_PIECES + len(names)


def _counted_now_ms(runtime: Runtime, period_ms: int) -> int:
    """The time of day minus the time within this period in which the broker was down, which does not count as
    silence.
    """
    now_ms = runtime.clock.now_ms()
    runtime.log.note_time(now_ms, runtime.clock.steady_ms())
    return now_ms - runtime.log.state.silence.allowed_ms(now_ms, period_ms) + period_ms


def remove_set_aside(runtime: Runtime) -> Steps[None]:
    """Remove files that starts have put aside, after the time for which they are kept."""
    files = runtime.log.files
    for kept in list(aside.kept_before(files, runtime.clock.now_ms())):
        aside.remove(files, [kept])
        runtime.events.tell(logging.INFO, "set_aside_removed", path=kept.path, bytes=kept.size)
        yield APPEND_PIECES


def forget_old_offsets(runtime: Runtime) -> Steps[None]:
    log = runtime.log

    def name_of(number: int) -> str:
        topic = log.state.catalog.numbered(number)
        return "" if topic is None else topic.name

    retention_ms = runtime.limits.offsets_retention_ms
    now_ms = _counted_now_ms(runtime, retention_ms)
    for group in list(log.state.groups):
        for entry in log.state.groups.decide_expiry(group, now_ms, retention_ms, name_of):
            log.commit(entry)
            if isinstance(entry, GroupDeleted):
                runtime.events.tell(logging.INFO, "group_forgotten", group=entry.group)
            else:
                count = len(entry.partitions)
                runtime.metrics.forgotten_offsets += count
                runtime.events.tell(logging.INFO, "offsets_forgotten", group=entry.group, partitions=count)
            yield APPEND_PIECES if isinstance(entry, GroupDeleted) else APPEND_PIECES + count
        yield 2 + len(group.offsets.committed) // 10
