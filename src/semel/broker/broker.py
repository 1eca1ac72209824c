"""The broker: one log, its connections, and the order in which changes become durable and answers leave.

All requests are served on one event loop, so no state needs a lock. The disk is waited for in four threads: one syncs
the journal, over and over as long as there is something to sync, and everything that was appended meanwhile shares the
next sync; another writes checkpoints; the third brings records into memory that have left it; the fourth compacts. A
fifth opens what clients have compressed. If a sync of the journal fails, or the log is torn, the broker stops serving
at once and for good, because nothing that was not durable yet can be trusted any more; a restart recovers what was.

A broker on a store has its journal there. Its directory is a cache, so that the loss of the machine loses nothing. The
broker that opens the store last is the active one; the one before learns that from its next slot, and ends.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from semel.broker.apis import served_by_its_handler
from semel.broker.chores import Chores
from semel.broker.classic_groups import ClassicGroupCoordinator
from semel.broker.clock import Clock
from semel.broker.compactor import Compactor
from semel.broker.connection import Connection, Exchange
from semel.broker.consumer_groups import ConsumerGroupCoordinator
from semel.broker.disk_thread import DiskThread
from semel.broker.events import Events
from semel.broker.guard import Guard
from semel.broker.journal_pump import DiskSync, Durability, JournalPump, Sync
from semel.broker.limits import Limits, log_settings
from semel.broker.members import Members
from semel.broker.metrics import Metrics
from semel.broker.receive_buffer import ReceiveMemory
from semel.broker.runtime import Runtime
from semel.broker.serving import serve_on
from semel.broker.sessions import FetchSessions
from semel.broker.transactions import TransactionCoordinator
from semel.broker.turns import Turns
from semel.compaction.opening import KeyChecks
from semel.core.slots import BrokenHistory
from semel.core.steps import Pace
from semel.replica.journal import SlotJournal
from semel.replica.membership import cluster_of
from semel.replica.reader import SlotReader
from semel.replica.writer import Fenced, SlotWriter
from semel.security.listeners import Listener, check_listeners
from semel.storage.files import DiskFiles, Files, MemoryFiles
from semel.storage.log import Log, LogSettings, Torn
from semel.storage.segment import Stretch
from semel.store import Store, StoreError
from semel.wire.errors import ProtocolError

STOP_SECONDS_MAX: Final = 1.5


class BrokerFailed(Exception):
    """The broker had to stop, most often because the disk failed; the message says how."""


class BrokerFenced(BrokerFailed):
    """Another broker on the same store has taken over; this one may be started again."""


class Broker:
    """A broker to be embedded in an event loop: `async with Broker(...) as broker: broker.bootstrap`."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listeners: Sequence[Listener] = (),
        insecure: bool = False,
        durability: Durability = "fsync",
        store: Store | None = None,
        commit_interval_seconds: float = 0.0,
        auto_create_topics: bool = True,
        partitions_default: int = 1,
        access_rules: bool = False,
        super_users: Collection[str] = (),
        limits: Limits | None = None,
        files: Files | None = None,
        settings: LogSettings | None = None,
        clock: Callable[[], float] = time.time,
        disk_threads: Callable[[str, asyncio.AbstractEventLoop], DiskThread] = DiskThread,
        pace: Pace | None = None,
    ) -> None:
        """`data` is the directory to keep the log in; without one it lives in memory, as long as the broker does.

        `listeners` take the place of `host` and `port`, where one plain listener is not enough. Beyond the loopback a
        listener without a login is refused unless `insecure` says that the network is trusted.

        With `access_rules` a client may do what the access rules in the log allow; `super_users`, such as
        "User:admin", may do everything.

        With a `store` the journal lies there, and `data` is a cache. Changes wait `commit_interval_seconds` for others
        that share their object.
        """
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.events = Events()
        self.listeners = list(listeners) or [Listener(host=host, port=port)]
        check_listeners(self.listeners, insecure=insecure)
        # A store answers when it has what it was given; its disks are its own business.
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
        self.waiting_partitions = 0
        self.unsent_bytes = 0
        # Since the log was recovered.
        self.log: Log
        # Since the broker was started.
        self.clock: Clock
        self.turns: Turns
        self.pump: JournalPump
        self.runtime: Runtime
        self.guard: Guard
        self.transactions: TransactionCoordinator
        self.members: Members
        self.groups: ClassicGroupCoordinator
        self.consumer_groups: ConsumerGroupCoordinator
        self.failed: asyncio.Future[None]
        self._data = data
        self._files = files
        self._store = store
        self._commit_interval_seconds = commit_interval_seconds
        settings = settings or log_settings(self.limits, in_memory=data is None and files is None)
        self._settings = replace(settings, acknowledges_unsynced=self.durability == "os")
        self._time_of_day = clock
        self._disk_threads = disk_threads
        # In the order in which they came, so that the same events have the same outcome.
        self._connections: dict[Connection, None] = {}
        self._servers: list[asyncio.Server] = []
        self._loop: asyncio.AbstractEventLoop
        self._chores: Chores
        self._reader: DiskThread
        self._opener: DiskThread
        self._threads_running = False
        self._stopping = False
        # What `stop` waits for.
        self._progress: asyncio.Future[None] | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def recover(self, on_progress: Callable[[int], None] | None = None) -> None:
        """Take the data directory and bring back what is in it. `start` does it unless it was done before, and for a
        broker on a store.
        """
        self.log = Log.open(
            self._open_files(), new_cluster_id=_new_cluster_id(), settings=self._settings, on_progress=on_progress
        )

    def _open_files(self) -> Files:
        return self._files or (MemoryFiles() if self._data is None else DiskFiles(self._data))

    async def start(self) -> None:
        """Recover, listen, serve. OSError if the port is not free, with nothing left behind; StoreError or BrokenHistory
        if the store cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        if self._store is not None:
            self._wire(await self._take_over(self._store))
        else:
            if not hasattr(self, "log"):
                self.recover()
            self._wire(DiskSync(self.log, self._thread("sync")))
        self.transactions.begin()
        self.groups.begin()
        self.consumer_groups.begin()
        self._chores.begin()
        try:
            for number in range(len(self.listeners)):
                await self._listen(number)
        except BaseException:
            await self.kill()
            raise
        log = self.log
        recovery: dict[str, Any] = {"topics": len(log.state.catalog), "journal_position": log.end}
        recovery |= {"replayed_bytes": log.replayed_bytes, "leader_epoch": log.state.partitions.leader_epoch}
        for listener in self.listeners:
            self.events.tell(logging.INFO, "started", listener=listener.name, address=listener.address, **recovery)

    async def _take_over(self, store: Store) -> Sync:
        """Read all that the store has, and be the active broker from there on."""
        journal = SlotJournal(self.limits.store_pending_bytes_max)
        cluster_id = await cluster_of(store, _new_cluster_id())
        self.log = Log.beside(self._open_files(), journal, cluster_id=cluster_id, settings=self._settings)
        try:
            reader = SlotReader(store, journal, self.log)
            await reader.take_over()
        except BaseException:
            self.log.abandon()
            raise
        self.log.show_all()
        return SlotWriter(store, journal, reader.history)

    async def _listen(self, number: int) -> None:
        """Take connections on one of the listeners, which learns its port here."""
        listener = self.listeners[number]

        def connection() -> Connection:
            return Connection(self, self.listeners[number])

        try:
            server = await self._loop.create_server(
                connection, listener.host, listener.port, backlog=512, reuse_address=True
            )
        except OSError as error:
            # So that the message can say which of the addresses it is.
            error.filename = listener.address
            raise
        self._servers.append(server)
        self.listeners[number] = listener.bound_to(server.sockets[0].getsockname()[1])

    def _thread(self, name: str) -> DiskThread:
        return self._disk_threads(f"semel-{name}", self._loop)

    def _wire(self, sync: Sync) -> None:
        """Make the threads, and the objects that work on the log."""
        checkpointer, self._reader, self._opener = map(self._thread, ("checkpoint", "read", "open"))
        self._threads_running = True
        self.clock = Clock(self._time_of_day, self._loop)
        self.turns = Turns(self._note_progress, self._opener.run, self.pace.pieces_per_turn)
        self.pump = JournalPump(
            self.log,
            self.durability,
            clock=self.clock,
            turns=self.turns,
            metrics=self.metrics,
            events=self.events,
            sync=sync,
            checkpointer=checkpointer,
            fail=self.fail,
            note_progress=self._note_progress,
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
        self.guard = Guard(
            self.log.state.access,
            in_force=self._access_rules,
            super_users=self._super_users,
            metrics=self.metrics,
        )
        self.members = Members(self.runtime)
        self.transactions = TransactionCoordinator(self.runtime)
        self.consumer_groups = ConsumerGroupCoordinator(self.runtime, self.members)
        self.groups = ClassicGroupCoordinator(self.runtime, self.members, self.consumer_groups)
        self.compactor.begin(self.runtime, self._thread("compact"))
        self._chores = Chores(self.runtime, self.compactor, self.receive_memory, self._connections)

    @property
    def bootstrap(self) -> str:
        """What clients of the first listener put into `bootstrap.servers`."""
        return self.listeners[0].bootstrap

    @property
    def epoch(self) -> int:
        """Which of the brokers that one after the other were active on the store this is; 0 without a store."""
        return self.log.state.partitions.leader_epoch if self._store is not None else 0

    async def stop(self) -> None:
        """Answer what is under way, as far as that takes no more than a moment, then leave everything durable."""
        if self._stopping:
            return
        self._stopping = True
        self._stop_beginning()
        for connection in self._connections:
            connection.stop_serving()
        self.groups.stop()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._until(lambda: self.turns.is_idle or self.failed.done())
                await self._until(lambda: not self.pump.is_waited_for or self.failed.done())
                for connection in list(self._connections):
                    connection.close()
                await self._until(lambda: not self._connections)
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
        await self._stop_threads()
        if self.failed.done():
            self.log.abandon()
        else:
            self.log.close()
        if self._store is not None:
            await self._store.close()
        self.events.tell(logging.INFO, "stopped", journal_position=self.log.end)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds; it is looked at whenever a connection ends or answers leave."""
        while not condition():
            self._progress = self._loop.create_future()
            await self._progress

    def _note_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    async def kill(self) -> None:
        """Stop as a crash of the process would: no answer, no checkpoint. For tests."""
        self._stopping = True
        self._stop_beginning()
        for connection in list(self._connections):
            connection.abort()
        await self._stop_threads()
        self.log.abandon()

    def _stop_beginning(self) -> None:
        """Take no more connections, and begin nothing that no client asked for."""
        self.runtime.alarm.stop()
        self._chores.stop()
        self.pump.make_no_more_checkpoints()
        for server in self._servers:
            server.close()

    async def _stop_threads(self) -> None:
        """Wait for the disk threads to finish, and for their errors: the log must not be closed after a failed sync."""
        self.turns.stop()
        self._threads_running = False
        self.compactor.stop()
        self.pump.stop()
        for thread in (self._reader, self._opener):
            thread.stop()
        # The outcomes are in the event loop's queue, in front of us.
        await asyncio.sleep(0)

    def fail(self, error: BaseException) -> None:
        """The disk or the memory can no longer be trusted: log that, stop serving, and leave the rest to a restart."""
        if self.failed.done():
            return
        cause = error if isinstance(error, Torn) else repr(error)
        if isinstance(error, Fenced | StoreError | BrokenHistory):
            reason = str(error)
        else:
            reason = f"the disk failed: {error}" if isinstance(error, OSError) else f"a fault of its own: {cause}"
        # A torn log says by itself what broke off, and an operator needs no more than that line.
        mistake = None if isinstance(error, OSError | Torn | Fenced | StoreError | BrokenHistory) else error
        self.events.tell(logging.CRITICAL, "stopped_serving", error=mistake, reason=reason)
        self.events.tell(logging.DEBUG, "stopped_where", error=error)
        self.failed.set_exception(BrokerFenced(reason) if isinstance(error, Fenced) else BrokerFailed(reason))
        # Looked at here, so that asyncio does not report it as never retrieved.
        self.failed.exception()
        self._note_progress()
        self.turns.stop()
        self.pump.halt()
        self._stop_beginning()
        for connection in list(self._connections):
            connection.abort()

    # -- connections --------------------------------------------------------------------------------------------

    def welcome(self, connection: Connection) -> bool:
        """A client has connected; False if there are too many."""
        if len(self._connections) >= self.limits.connections_max or self._stopping or self.failed.done():
            self.metrics.connections_refused += 1
            self.events.tell(
                logging.WARNING, "connection_refused", peer=connection.peer, connections=len(self._connections)
            )
            return False
        self._connections[connection] = None
        self.metrics.connections_opened += 1
        self.metrics.connections_open += 1
        connection.number = self.metrics.connections_opened
        return True

    def farewell(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self.metrics.connections_open -= 1
            self.groups.connection_lost(connection.number)
        self._note_progress()

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        self.metrics.protocol_errors += 1
        self.events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=error)
        connection.abort()

    # -- requests -----------------------------------------------------------------------------------------------

    def serve(self, exchange: Exchange, body: memoryview, done: Callable[[], None]) -> None:
        """Have a request answered by the handler of its API; `done` is called when the next one may be begun."""
        serve_on(self, exchange, served_by_its_handler(self, exchange, body), done)

    def warm(self, stretches: list[Stretch], done: Callable[[], None]) -> None:
        """Have records brought from the disk into memory without waiting for it, then call `done`."""

        def read() -> None:
            # A broker that stops waits for this thread, and no client would get what it brings.
            if self._threads_running:
                self.log.warm(stretches)

        self._reader.run(read, lambda _: done())


def _new_cluster_id() -> str:
    return secrets.token_urlsafe(16)
