"""The broker: one log, its connections, and the order in which changes become durable and answers are sent.

One event loop serves all requests, so no state needs a lock. Five threads wait for the disk. One syncs the journal
again and again, and all entries appended during a sync share the next. The others write checkpoints, read records into
the page cache, compact, and look for damage. A sixth thread decompresses batches. If a sync fails, or the log is torn,
the broker stops serving at once and for good, because its state may be ahead of what is durable; a restart recovers.

A broker on a store has its journal there, and its directory is a cache, so that nothing is lost with the machine. One
broker on a store is active. When another takes over, the former one learns that with its next slot, and stops.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from semel.log.broker.alone import Alone
from semel.log.broker.apis import APIS, served_by_its_handler
from semel.log.broker.certificates import TlsSettings
from semel.log.broker.chores import Chores
from semel.log.broker.classic_groups import ClassicGroupCoordinator
from semel.log.broker.clock import Clock
from semel.log.broker.compactor import Compactor
from semel.log.broker.connections import Connections, Progress
from semel.log.broker.consumer_groups import ConsumerGroupCoordinator
from semel.log.broker.decisions import Decisions
from semel.log.broker.disk_thread import DiskThread
from semel.log.broker.doors import Doors
from semel.log.broker.events import Events
from semel.log.broker.exchange import Exchange
from semel.log.broker.failure import BrokerFenced, tell_of_failure
from semel.log.broker.forwarder import Forwarder, Reach
from semel.log.broker.guard import Guard
from semel.log.broker.journal_pump import Durability, JournalPump
from semel.log.broker.lease_end import LeaseEnd
from semel.log.broker.limits import Limits, log_settings
from semel.log.broker.members import Members
from semel.log.broker.metrics import Metrics
from semel.log.broker.open_files import shares_of_open_files, within_open_files
from semel.log.broker.questions import Questions
from semel.log.broker.receive_buffer import ReceiveMemory
from semel.log.broker.role import NOBODY, Role
from semel.log.broker.runtime import Runtime
from semel.log.broker.scrubber import Scrubber
from semel.log.broker.security_log import SecurityLog
from semel.log.broker.serving import serve_on
from semel.log.broker.sessions import FetchSessions
from semel.log.broker.share_groups import ShareGroupCoordinator
from semel.log.broker.standby import is_served_by_handlers, refused_by_a_standby
from semel.log.broker.throttle import Throttle
from semel.log.broker.transactions import TransactionCoordinator
from semel.log.broker.turns import Turns
from semel.log.broker.wakeups import Wakeups
from semel.log.broker.warmer import Warmer
from semel.log.compaction.records import KeyChecks
from semel.log.replica.cache import CACHE_BYTES
from semel.log.replica.lease import LEASE_SECONDS, Lease, boot_seconds
from semel.log.replica.writer import Fenced
from semel.log.security.listeners import Listener
from semel.log.security.tokens import TokenSettings
from semel.log.storage.files import DiskFiles, Files, MemoryFiles
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.store import Store
from semel.wire.hosts import shown_address
from semel.wire.steps import Pace

STOP_SECONDS_MAX: Final = 1.5
# How long a broker that has handed over names the next one. Most clients that were refused ask after 0.1 s.
HEARD_SECONDS_MAX: Final = 0.3


class Broker:
    """A broker within an event loop: `async with Broker(...) as broker: broker.bootstrap`."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listeners: Sequence[Listener] = (),
        insecure: bool = False,
        tls: TlsSettings | None = None,
        tokens: TokenSettings | None = None,
        durability: Durability = "fsync",
        store: Store | None = None,
        commit_interval_seconds: float = 0.0,
        lease_seconds: float = LEASE_SECONDS,
        cache_bytes: int | None = CACHE_BYTES,
        accepted_losses: Collection[str] = (),
        auto_create_topics: bool = True,
        partitions_default: int = 1,
        access_rules: bool = False,
        super_users: Collection[str] = (),
        security_log: SecurityLog | None = None,
        limits: Limits | None = None,
        must_have_log: bool = False,
        files: Files | None = None,
        settings: LogSettings | None = None,
        clock: Callable[[], float] = time.time,
        boot_clock: Callable[[], float] = boot_seconds,
        disk_threads: Callable[[str, asyncio.AbstractEventLoop], DiskThread] = DiskThread,
        reach: Reach = asyncio.open_connection,
        pace: Pace | None = None,
    ) -> None:
        """`data` is the directory of the log; without it the log is in memory, and is lost when the broker stops.

        `listeners` replace `host` and `port`. A listener that other machines can reach is refused if it has no TLS, or
        if clients that do not say who they are may do everything there, unless `insecure` says that the network is
        trusted. `tls` names the certificates, `tokens` the provider of tokens. With `access_rules`, or as soon as a
        listener is not PLAINTEXT, a client may do only what the access rules in the log allow; `super_users`, such as
        "User:admin", may do everything. `security_log` gets the requests that are denied.

        With `must_have_log` the broker never begins an empty log in `data`: a disk may not be mounted there.

        With a `store` the journal is there, and `data` is a cache. An entry waits up to `commit_interval_seconds` to
        share an object. If another broker on the store is active, this one stands by, and takes over when the other has
        not renewed its lease for `lease_seconds`. `data` keeps up to `cache_bytes` of what is in the store. A store
        that has lost an object is refused, unless the object's key is one of `accepted_losses`.
        """
        self.apis = APIS
        self.metrics = Metrics()
        self.decisions = Decisions(self.metrics)
        self.events = Events(security_log=security_log)
        shares = shares_of_open_files(on_store=store is not None)
        self.limits = within_open_files(limits or Limits(), shares, self.events)
        self.listeners = list(listeners) or [Listener(host=host, port=port)]
        self.doors = Doors(
            self.listeners, insecure, tls, tokens, super_users, clock, self.limits, self.metrics, self.events
        )
        # A store acknowledges an object only when it is durable, so there is nothing to choose.
        self.durability: Durability = durability if store is None else "fsync"
        self.pace = pace or Pace()
        self.auto_create_topics = auto_create_topics
        self.partitions_default = partitions_default
        self._access_rules = access_rules
        self._super_users = frozenset(super_users)
        self.compactor = Compactor()
        self.key_checks = KeyChecks(self.limits.compacted_batch_bytes_max)
        self.fetch_sessions = FetchSessions(self.limits.fetch_sessions_max, self.limits.fetch_session_partitions_max)
        self.receive_memory = ReceiveMemory(self.limits.receive_bytes_max)
        self.waiting_partitions = self.unsent_bytes = 0
        # Set by recovery; then `_wire` makes the objects that work on it.
        self.log: Log
        self.data = data
        self._files = files
        self._commit_interval_seconds = commit_interval_seconds
        self.scrubber: Scrubber | None = None
        self.role: Role | Alone = Alone(clock, must_have_log=must_have_log)
        if store is not None:
            self.role = Role(
                *(store, lease_seconds, cache_bytes, accepted_losses, self.limits),
                metrics=self.metrics,
                events=self.events,
                boot_clock=boot_clock,
            )
        self._forwarder = Forwarder(reach, self.limits.frame_bytes_max, shares.forwarded_max)
        settings = settings or log_settings(
            self.limits, in_memory=data is None and files is None, open_segments_max=shares.segments_max
        )
        self._settings = replace(settings, acknowledges_unsynced=self.durability == "os")
        self._time_of_day = clock
        self._disk_threads = disk_threads
        self._stopping = False
        self._questions = Questions(lambda: self.role.is_in_doubt and not self._stopping)
        # The broker that was active while this one stood by.
        self._stood_by_for = NOBODY
        # What `stop` waits for.
        self._progress = Progress()

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def recover(self, on_progress: Callable[[int], None] | None = None) -> None:
        """Lock the data directory and recover its log, or let `start` do it. Not for a broker on a store."""
        assert isinstance(self.role, Alone)
        self.log = self.role.recover(self._open_files(), _new_cluster_id(), self._settings, on_progress)

    def _open_files(self) -> Files:
        return self._files or (MemoryFiles() if self.data is None else DiskFiles(self.data))

    async def start(self) -> None:
        """Recover, listen, serve. OSError if a port is not free; then everything is released. StoreError or
        BrokenHistory if the store cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        # Done when this broker is the active one, and serves.
        self.activated: asyncio.Future[None] = self._loop.create_future()
        # Done when an operator wants a standby to take over: the caller stops this broker, and starts another.
        self.resigned: asyncio.Future[None] = self._loop.create_future()
        if not hasattr(self, "log"):
            self.log = await self.role.open_log(self._open_files, _new_cluster_id(), self._settings)
        self._wire()
        try:
            await self.doors.open(self, self.log.state.users)
            self._chores.begin()
            await self.role.find(
                self.listeners,
                self._become_active,
                self._note_active,
                self._lease_end.give_up_clients,
                self._lease_end.take_clients_again,
                self._resign,
                self.fail,
            )
            await self.doors.let_in()
            self._tell_if_started()
        except BaseException as error:
            await self.kill()
            if isinstance(error, Fenced):
                raise BrokerFenced(str(error)) from None
            raise

    def _become_active(self) -> None:
        """Begin the work of the active broker, whose log is complete."""
        self._forwarder.give_up()
        if self.role.epoch:
            # All entries of earlier brokers have been read, and no other broker can write.
            self.log.show_all()
            self.pump.begin_here()
        self.doors.begin(self.runtime)
        self.transactions.begin()
        self.groups.begin()
        self.consumer_groups.begin()
        self.share_groups.begin()
        self._chores.begin_on_log()
        if self.scrubber is not None:
            self.scrubber.begin()
        self._tell_if_started()

    def _tell_if_started(self) -> None:
        """Tell that this broker serves, as soon as it is active and clients can connect."""
        if self.doors.are_open and self.role.is_active:
            if self._stood_by_for != NOBODY:
                # The operator has to look after the former one, also where a healthy broker logs nothing.
                self.events.tell(logging.WARNING, "took_over", former=self._stood_by_for, epoch=self.role.epoch)
            self.doors.tell_started(self.log)
            self.activated.set_result(None)

    def _note_active(self, lease: Lease) -> None:
        self._stood_by_for = self.active_bootstrap
        self.events.tell(logging.INFO, "standing_by", active=self.active_bootstrap, epoch=lease.epoch)

    async def _let_clients_in(self) -> None:
        self.connections.admit_again()
        await self.doors.open(self, self.log.state.users)
        await self.doors.let_in()
        if not self.activated.done():
            self._tell_if_started()

    def _resign(self, has_standby: bool) -> None:
        if has_standby:
            self.events.tell(logging.WARNING, "resigns", epoch=self.role.epoch)
            self.resigned.set_result(None)
        else:
            self.events.tell(logging.WARNING, "stays_active", reason="it was asked to resign, and there is no standby")

    def _thread(self, name: str) -> DiskThread:
        return self._disk_threads(f"semel-{name}", self._loop)

    def _wire(self) -> None:
        """Make the threads, and the objects that work on the log."""
        sync, checkpoints = self.role.durable(self.log, self._thread)
        self.warmer = Warmer(self.log, self._thread("read"), self.role.cache)
        self._opener = self._thread("open")
        self.clock = Clock(self._time_of_day, self._loop)
        self.turns = Turns(self._progress.note, self._opener.run, self.pace.pieces_per_turn)
        self.pump = JournalPump(
            self.log,
            self.durability,
            clock=self.clock,
            turns=self.turns,
            metrics=self.metrics,
            events=self.events,
            sync=sync,
            checkpoints=checkpoints,
            fail=self.fail,
            note_progress=self._progress.note,
            gather_seconds=self._commit_interval_seconds,
        )
        self.runtime = Runtime(
            self.log,
            self.limits,
            self.pace,
            metrics=self.metrics,
            events=self.events,
            clock=self.clock,
            turns=self.turns,
            pump=self.pump,
        )
        self.wakeups = Wakeups(self.runtime)
        self.log.note_moved = self.wakeups.note_moved
        self.guard = Guard(
            self.log.state.access,
            in_force=self._access_rules or self.doors.need_access_rules,
            super_users=self._super_users,
            metrics=self.metrics,
            events=self.events,
        )
        self.throttle = Throttle(self.runtime)
        self.members = Members(self.runtime)
        self.transactions = TransactionCoordinator(self.runtime)
        self.consumer_groups = ConsumerGroupCoordinator(self.runtime, self.members, self.guard)
        self.share_groups = ShareGroupCoordinator(self.runtime, self.members, self.guard, self.decisions)
        self.groups = ClassicGroupCoordinator(self.runtime, self.members, self.consumer_groups, self.share_groups)
        self.compactor.begin(self.runtime, self._thread("compact"), self.role.cache)
        if self.role.cache is None and self.data is not None:
            self.scrubber = Scrubber(self.runtime, self._thread("scrub"))
        self.connections = Connections(
            self.limits,
            self.metrics,
            self.events,
            self.doors,
            self.throttle,
            self.groups,
            self.share_groups,
            self._progress.note,
        )
        self._lease_end = LeaseEnd(
            self.role,
            self.connections,
            self.doors,
            metrics=self.metrics,
            events=self.events,
            let_in=self._let_clients_in,
            fail=self.fail,
        )
        self._chores = Chores(self.runtime, self.compactor, self.receive_memory, self.connections, self.doors)

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for clients of the first listener."""
        return self.listeners[0].bootstrap

    @property
    def active_bootstrap(self) -> str:
        """Where clients of the first listener reach the other broker that is active, not this one before a restart."""
        host, port = self.role.active_at(self.listeners[0])
        return shown_address(host, port) if port and self.role.is_another_active else NOBODY

    async def stop(self) -> None:
        """Answer the requests under way, if that takes only a moment, and then make everything durable."""
        if self._stopping:
            return
        self._stopping = True
        if not self.failed.done() and await self.role.finds_standby() and not self.failed.done():
            await self._hand_over()
        self._stop_beginning()
        self.connections.stop_serving()
        if self.role.is_active:
            self.groups.stop()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._progress.until(lambda: self._has_nothing_under_way or self.failed.done())
                self.connections.close()
                await self._progress.until(lambda: not self.connections)
        except TimeoutError:
            self.connections.abort()
        await self._stop_threads()
        if self.failed.done():
            self.log.abandon()
        else:
            self.log.close()
        await self.role.leave(is_clean=not self.failed.done(), is_durable=self.pump.settled == self.log.end)
        self.events.tell(logging.INFO, "stopped", journal_position=self.log.end)
        self.events.close()

    async def _hand_over(self) -> None:
        """Release the lease while clients can still connect. They hear that this broker is not the leader, and are told
        which one is as soon as there is one; none of them has to find out by a connection that is refused.
        """
        self.role.lead_no_more()
        self._questions.are_held = True
        self._stop_chores()
        self.compactor.stop()
        self.groups.stop()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await self._progress.until(lambda: self._has_nothing_under_way or self.failed.done())
                # Only now no fetch begins to wait any more.
                for connection in self.connections:
                    connection.hurry()
                if not self.failed.done():
                    await self.role.hand_over()
        finally:
            self._questions.are_held = False
        await self._questions.answer()
        if self.role.is_another_active:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARD_SECONDS_MAX):
                    await self._progress.until(lambda: not self.connections)

    @property
    def _has_nothing_under_way(self) -> bool:
        """Whether every change is durable, every answer that waits for that is sent, and no step of a request is left
        that could change anything.
        """
        # Without a store the last checkpoint makes entries durable for which no client waits.
        is_durable = not self.role.epoch or self.pump.settled == self.log.end
        return self.turns.is_idle and not self.pump.is_waited_for and is_durable

    async def kill(self) -> None:
        """Stop as in a crash of the process: without answers and without a checkpoint. For tests."""
        self._stopping = True
        self._stop_beginning()
        self.connections.abort()
        await self._stop_threads()
        self.log.abandon()
        await self.role.leave(is_clean=False, is_durable=False)

    def _stop_beginning(self) -> None:
        """Accept no more connections, and begin no more chores."""
        self.role.stop()
        self._lease_end.stop()
        self._forwarder.stop()
        self.connections.admit_no_more()
        self._stop_chores()
        self.doors.close()

    def _stop_chores(self) -> None:
        """Begin no more chores, checkpoints and deadlines."""
        self.runtime.alarm.stop()
        self.share_groups.stop()
        self._chores.stop()
        self.pump.make_no_more_checkpoints()

    async def _stop_threads(self) -> None:
        """Wait for the disk threads to finish, and for their errors: the log must not be closed after a failed sync."""
        self.turns.stop()
        self.warmer.stop()
        self.compactor.stop()
        if self.scrubber is not None:
            self.scrubber.stop()
        self.pump.stop()
        self._opener.stop()
        # The outcomes are in the event loop's queue, and are handled before this goes on.
        await asyncio.sleep(0)

    def fail(self, error: BaseException) -> None:
        """Stop serving for good, and log why: the disk or the state in memory cannot be trusted until a restart."""
        if self.failed.done():
            return
        self.failed.set_exception(tell_of_failure(self.events, error, was_cut_off=self._lease_end.was_in_time))
        # Retrieved here, so that asyncio does not report it as never retrieved.
        self.failed.exception()
        self._progress.note()
        self.turns.stop()
        self.pump.halt()
        self._stop_beginning()
        self.connections.abort()

    def serve(self, exchange: Exchange, body: memoryview, done: Callable[[], None]) -> None:
        """Have the handler of its API answer a request; call `done` when the next request may begin."""
        if self._questions.take(exchange, body, lambda copy: self.serve(exchange, copy, done)):
            return
        if self.role.is_another_active and self._may_forward and self._forwarder.takes(exchange):
            copy = bytes(body)
            address = self.role.active_at(exchange.listener)
            # The next request of the client waits, because it may depend on this one.
            self._forwarder.forward(
                address, exchange, copy, lambda: self._serve_here(exchange, memoryview(copy), done), done
            )
        else:
            self._serve_here(exchange, body, done)

    @property
    def _may_forward(self) -> bool:
        """Whether it makes no difference to the active broker who asks, because nobody has to log in anywhere. A broker
        that stops may not wait for its answer.
        """
        return not self._stopping and not (self._access_rules or self.doors.need_access_rules)

    def _serve_here(self, exchange: Exchange, body: memoryview, done: Callable[[], None]) -> None:
        stands_by = not self.role.is_active
        if stands_by:
            # Everything that a standby has read is durable, because it read it from the store.
            self.pump.begin_here()
        api = exchange.api
        if api is None or self.role.may_serve or is_served_by_handlers(api, stands_by=stands_by):
            steps = self.throttle.measured(exchange, served_by_its_handler(self, exchange, body))
        else:
            steps = refused_by_a_standby(api, exchange, body, stands_by=stands_by)
        serve_on(self, exchange, steps, done)


def _new_cluster_id() -> str:
    return secrets.token_urlsafe(16)
