"""The broker: one log, its connections, and the order in which changes become durable and answers leave.

All requests are served on one event loop, so no state needs a lock. The disk is waited for in four threads: one syncs
the journal, over and over as long as there is something to sync, and everything that was appended meanwhile shares the
next sync; another writes checkpoints; the third brings records into memory that have left it; the fourth compacts. A
fifth opens what clients have compressed. If a sync of the journal fails, or the log is torn, the broker stops serving
at once and for good, because nothing that was not durable yet can be trusted any more; a restart recovers what was.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from semel.broker.alarm import Alarm
from semel.broker.apis import served_by_its_handler
from semel.broker.chores import Chores
from semel.broker.classic_groups import ClassicGroupCoordinator
from semel.broker.compactor import Compactor
from semel.broker.connection import Connection, Exchange
from semel.broker.consumer_groups import ConsumerGroupCoordinator
from semel.broker.disk_thread import DiskThread, Outcome
from semel.broker.events import Events
from semel.broker.limits import Limits, log_settings
from semel.broker.metrics import Metrics
from semel.broker.receive_room import ReceiveRoom
from semel.broker.serving import serve_on
from semel.broker.sessions import FetchSessions
from semel.broker.transactions import TransactionCoordinator
from semel.broker.turns import Turns
from semel.compaction.opening import KeyChecks
from semel.core.entries import Entry, TransactionEnded
from semel.core.producer_room import NoRoom
from semel.core.steps import Pace, Steps
from semel.storage.checkpoint import CheckpointJob
from semel.storage.files import OUT_OF_SPACE, DiskFiles, Files, MemoryFiles
from semel.storage.journal import SyncJob
from semel.storage.log import Log, LogSettings, Torn
from semel.storage.markers import PreparedEnd
from semel.storage.segment import Stretch
from semel.wire.errors import ProtocolError

Durability = Literal["fsync", "os"]

STOP_SECONDS_MAX: Final = 1.5
# How often it is told that there is no room for more producers.
NO_ROOM_TOLD_MS: Final = 60_000
# Turns of the event loop that a sync waits at most. Clients send a request for each partition, one right behind the
# other: a sync that begins with the first has the others wait for two. More turns would leave the disk idle under load.
GATHERING_TURNS_MAX: Final = 8


class BrokerFailed(Exception):
    """The broker had to stop, most often because the disk failed; the message says how."""


class Broker:
    """A broker to be embedded in an event loop: `async with Broker(...) as broker: broker.bootstrap`."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        advertised_port: int | None = None,
        durability: Durability = "fsync",
        auto_create_topics: bool = True,
        partitions_default: int = 1,
        limits: Limits | None = None,
        files: Files | None = None,
        settings: LogSettings | None = None,
        clock: Callable[[], float] = time.time,
        disk_threads: Callable[[str, asyncio.AbstractEventLoop], DiskThread] = DiskThread,
        pace: Pace | None = None,
    ) -> None:
        """`data` is the directory to keep the log in; without one it lives in memory, as long as the broker does."""
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.events = Events()
        self.host = host
        self.port = port
        self.advertised_host = advertised_host or host
        self._advertised_port = advertised_port
        self.durability: Durability = durability
        self.pace = pace or Pace()
        self.auto_create_topics = auto_create_topics
        self.partitions_default = partitions_default
        self.log: Log
        self.alarm: Alarm
        self.turns: Turns
        self.transactions = TransactionCoordinator(self)
        self.groups = ClassicGroupCoordinator(self)
        self.compactor = Compactor(self)
        self.key_checks = KeyChecks(self.limits.compacted_batch_bytes_max)
        self.chores = Chores(self)
        self.consumer_groups = ConsumerGroupCoordinator(self)
        self.fetch_sessions = FetchSessions(self.limits.fetch_sessions_max, self.limits.fetch_session_partitions_max)
        self.waiting_partitions = 0
        # The position of the journal before which every change counts: answers that depend on it may go.
        self.settled = 0
        self.unsent_bytes = 0
        self.failed: asyncio.Future[None]
        self._data = data
        self._files = files
        settings = settings or log_settings(self.limits, in_memory=data is None and files is None)
        self._settings = replace(settings, acknowledges_unsynced=durability == "os")
        self._clock = clock
        self._disk_threads = disk_threads
        # All of these in the order in which they came, so that the same events have the same outcome.
        self._connections: dict[Connection, None] = {}
        self._waiting_for_sync: dict[Connection, None] = {}
        self.receive_room = ReceiveRoom(self.limits.receive_bytes_max, self._connections)
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop
        self._syncer: DiskThread
        self._checkpointer: DiskThread
        self._reader: DiskThread
        self._opener: DiskThread
        self._sync_under_way = False
        self._sync_scheduled = False
        self._threads_running = False
        self._stopping = False
        # What `stop` waits for.
        self._progress: asyncio.Future[None] | None = None
        # After a checkpoint found no space there is a pause before the next one.
        self._checkpoint_postponed = False
        # Whether something was done about a full disk since the house was kept last.
        self._no_room_told_ms = -NO_ROOM_TOLD_MS
        self._space_sought = False

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def recover(self, on_progress: Callable[[int], None] | None = None) -> None:
        """Take the data directory and bring back what is in it. `start` does it unless it was done before."""
        files = self._files or (MemoryFiles() if self._data is None else DiskFiles(self._data))
        cluster_id = secrets.token_urlsafe(16)
        self.log = Log.open(files, new_cluster_id=cluster_id, settings=self._settings, on_progress=on_progress)
        self.settled = self.log.end

    async def start(self) -> None:
        """Recover, listen, serve. OSError if the port cannot be had, with nothing left behind."""
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        if not hasattr(self, "log"):
            self.recover()
        try:
            self._server = await self._loop.create_server(
                lambda: Connection(self), self.host, self.port, backlog=512, reuse_address=True
            )
        except BaseException:
            self.log.abandon()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        log = self.log
        what: dict[str, Any] = {"topics": len(log.state.catalog), "journal_position": log.end}
        what |= {"replayed_bytes": log.replayed_bytes, "leader_epoch": log.state.partitions.leader_epoch}
        self.events.tell(logging.INFO, "started", address=f"{self.host}:{self.port}", **what)
        self._syncer = self._disk_threads("semel-sync", self._loop)
        self._checkpointer = self._disk_threads("semel-checkpoint", self._loop)
        self._reader = self._disk_threads("semel-read", self._loop)
        self._opener = self._disk_threads("semel-open", self._loop)
        self.compactor.begin(self._disk_threads("semel-compact", self._loop), self.chores.attempt)
        self._threads_running = True
        self.turns = Turns(self._note_progress, self._opener.run, self.pace.pieces_per_turn)
        self._stopping = False
        self._uptime_began_s = self._clock() - self.uptime()
        self.alarm = Alarm(self._loop, self.steady_ms, self.chores.attempt)
        self.transactions.begin()
        self.groups.begin()
        self.consumer_groups.begin()
        self.alarm.look()
        self.chores.begin()

    @property
    def bootstrap(self) -> str:
        """What clients put into `bootstrap.servers`."""
        return f"{self.advertised_host}:{self.advertised_port}"

    @property
    def advertised_port(self) -> int:
        """The port that clients are told to use."""
        return self.port if self._advertised_port is None else self._advertised_port

    async def stop(self) -> None:
        """Answer what is under way, as far as that takes no more than a moment, then leave everything durable."""
        if self._stopping:
            return
        self._stopping = True
        await self._stop_listening()
        for connection in self._connections:
            connection.stop_serving()
        self.groups.stop()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._until(lambda: self.turns.is_idle or self.failed.done())
                await self._until(lambda: not self._waiting_for_sync or self.failed.done())
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
        await self._stop_listening()
        for connection in list(self._connections):
            connection.abort()
        await self._stop_threads()
        self.log.abandon()

    async def _stop_listening(self) -> None:
        self.alarm.stop()
        self.chores.stop()
        if self._server is not None:
            self._server.close()

    async def _stop_threads(self) -> None:
        """Let the disk finish, and hear how it went: the log must not be closed over a sync that failed."""
        self.turns.stop()
        self._threads_running = False
        self.compactor.stop()
        for thread in (self._syncer, self._checkpointer, self._reader, self._opener):
            thread.stop()
        # The outcomes are in the event loop's queue, in front of us.
        await asyncio.sleep(0)

    def fail(self, error: BaseException) -> None:
        """What is on disk or in memory cannot be vouched for: say so, stop serving, leave the rest to a restart."""
        if self.failed.done():
            return
        said = error if isinstance(error, Torn) else repr(error)
        reason = f"the disk failed: {error}" if isinstance(error, OSError) else f"a fault of its own: {said}"
        # A torn log says by itself what broke off, and an operator needs no more than that line.
        mistake = None if isinstance(error, OSError | Torn) else error
        self.events.tell(logging.CRITICAL, "stopped_serving", error=mistake, reason=reason)
        self.events.tell(logging.DEBUG, "stopped_where", error=error)
        self.failed.set_exception(BrokerFailed(reason))
        # Looked at here, so that asyncio does not call it forgotten where nobody asks.
        self.failed.exception()
        self._note_progress()
        for still_at_work in (self.turns, self.alarm, self.chores):
            still_at_work.stop()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    # -- connections --------------------------------------------------------------------------------------------

    def welcome(self, connection: Connection) -> bool:
        """A client has connected; False if there is no room for one more."""
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
        self._waiting_for_sync.pop(connection, None)
        self.receive_room.forget(connection)
        self._note_progress()

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        self.metrics.protocol_errors += 1
        self.events.tell(logging.WARNING, "connection_closed", peer=connection.peer, reason=error)
        connection.abort()

    # -- requests -----------------------------------------------------------------------------------------------

    def serve(self, exchange: Exchange, body: memoryview, done: Callable[[], None]) -> None:
        """Have a request answered by the handler of its API; `done` is called when the next one may be begun."""
        serve_on(self, exchange, served_by_its_handler(self, exchange, body), done)

    def tell_of_slip(self, event: str, error: Exception, **fields: object) -> None:
        """Something broke off that must not; an operator has to hear of it."""
        if self.log.torn is None:  # Else `fail` has more to tell.
            self.events.tell(logging.ERROR, event, error=error, **fields)

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def steady_ms(self) -> int:
        """The time of day at the start and what has passed since, whoever sets the clock: for deadlines."""
        return int((self._uptime_began_s + self._loop.time()) * 1000)

    def uptime(self) -> float:
        """Seconds on a clock that nobody can set: how long things take is measured by it."""
        return self._loop.time()

    def commit(self, entry: Entry, prepared: PreparedEnd | None = None) -> None:
        """Make a decision part of the log. OSError, after it was counted, if the disk would not take it."""
        try:
            self.log.commit(entry, prepared)
        except OSError as error:
            self.storage_error(error)
            raise

    def prepare_end(self, entry: TransactionEnded) -> Steps[PreparedEnd]:
        """Write the markers of an end that is to come. OSError, after it was counted, if the disk would not take it."""
        try:
            return (yield from self.log.prepare_end(entry))
        except OSError as error:
            self.storage_error(error)
            raise

    def storage_error(self, error: OSError) -> None:
        """A write was refused, most often by a full disk: nothing was changed, and the client is told to try again."""
        self.metrics.storage_errors += 1
        self.events.tell(logging.ERROR, "write_refused", reason=error)
        if error.errno in OUT_OF_SPACE and not self._space_sought:
            # A checkpoint gives files of the journal and deleted segments back; then retention can be written down.
            self._space_sought = True
            self._loop.call_soon(self._begin_checkpoint)

    def no_room(self, refused: NoRoom) -> None:
        """One more producer was refused. A client that is may try again at once, so not each time is told."""
        self.metrics.refused_producers += 1
        now_ms = self.steady_ms()
        if now_ms >= self._no_room_told_ms + NO_ROOM_TOLD_MS:
            self._no_room_told_ms = now_ms
            self.events.tell(logging.WARNING, "producer_refused", reason=refused)

    def unreadable(self, error: Exception) -> None:
        """Records that should be there cannot be read."""
        self.metrics.storage_errors += 1
        self.events.tell(logging.ERROR, "read_failed", reason=error)

    def warm(self, stretches: list[Stretch], done: Callable[[], None]) -> None:
        """Have records brought from the disk into memory without waiting for it, then call `done`."""

        def read() -> None:
            # Who stops waits for this thread, and nobody would get what it brings.
            if self._threads_running:
                self.log.warm(stretches)

        self._reader.run(read, lambda _: done())

    # -- becoming durable ---------------------------------------------------------------------------------------

    def wait_for_sync(self, connection: Connection) -> None:
        """`connection` has answers that may go once more of the journal is settled."""
        self._waiting_for_sync[connection] = None

    def follow_journal(self) -> None:
        """The journal may have grown: let it become durable, or count at once where the user chose so."""
        if self.log.torn is not None:
            self.fail(self.log.torn)
        if self.log.end == self.settled or self.failed.done():
            return
        if self.durability == "os" and self.log.identity_end <= self.log.synced:
            self._settle(self.log.end)
            if self.log.checkpoint_due:
                self._begin_checkpoint()
        elif not self._sync_scheduled and not self._sync_under_way:
            self._sync_scheduled = True
            self._loop.call_soon(self._gather_for_sync, -1, GATHERING_TURNS_MAX)

    def _gather_for_sync(self, end_before: int, turns_left: int) -> None:
        """Begin a sync once a turn of the event loop has brought nothing that could share it."""
        end = self.log.end
        if end != end_before and turns_left:
            self._loop.call_soon(self._gather_for_sync, end, turns_left - 1)
        else:
            self._begin_sync()

    def _begin_sync(self) -> None:
        self._sync_scheduled = False
        if self.log.end == self.log.synced or self.failed.done() or not self._threads_running:
            return
        self._sync_under_way = True
        job = self.log.begin_sync()
        self.metrics.syncs += 1
        self.metrics.synced_entries_bytes += job.target - self.log.synced
        self._syncer.run(job.run, self._or_fail(lambda error: self._end_sync(job, error)))

    def _or_fail(self, take_note: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """`take_note`; if it breaks off in the middle nobody knows any more what is durable, and clients would wait."""

        def guarded(outcome: Outcome) -> None:
            try:
                take_note(outcome)
            except Exception as error:
                self.fail(error)

        return guarded

    def _end_sync(self, job: SyncJob, error: Outcome) -> None:
        self._sync_under_way = False
        if error is not None:
            self.fail(error)
            return
        self.log.finish_sync(job)
        self.metrics.sync_waiters += len(self._waiting_for_sync)
        if self.durability == "os":
            self.follow_journal()
        else:
            self._settle(job.target)
            if self.log.end > self.log.synced:
                self._begin_sync()
        if self.log.checkpoint_due:
            self._begin_checkpoint()

    def _settle(self, position: int) -> None:
        self.settled = position
        self.log.settle(position)
        if self._waiting_for_sync:
            waiting, self._waiting_for_sync = self._waiting_for_sync, {}
            for connection in waiting:
                connection.send_answers()
            self._note_progress()

    def _begin_checkpoint(self) -> None:
        if self._stopping or self.failed.done() or self._checkpoint_postponed or self.log.checkpoint_running:
            return
        if self.durability == "os" and not self._sync_under_way:
            # Nobody waits for this one; it closes the journal's files that are full.
            self._begin_sync()
        self.turns.begin(self._checkpoint(), self._fail_over)

    def _checkpoint(self) -> Steps[None]:
        job = yield from self.log.begin_checkpoint_in_steps()
        self._checkpointer.run(job.run, self._or_fail(lambda error: self._end_checkpoint(job, error)))

    def _fail_over(self, error: Exception | None) -> None:
        if error is not None:
            self.fail(error)

    def _end_checkpoint(self, job: CheckpointJob, error: Outcome) -> None:
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
            self.storage_error(error)
            self.log.fail_checkpoint(job)
            self._checkpoint_postponed = True
        elif error is not None:
            self.fail(error)
        else:
            self.metrics.checkpoints += 1
            self.events.tell(logging.INFO, "checkpoint_written", journal_position=self.log.end)
            self.turns.begin(self._let_go(job), self._fail_over)

    def _let_go(self, job: CheckpointJob) -> Steps[None]:
        try:
            yield from self.log.finish_checkpoint(job)
        except OSError as refusal:
            self.storage_error(refusal)

    # -- keeping house ------------------------------------------------------------------------------------------

    def connections(self) -> list[Connection]:
        """Those that there are now."""
        return list(self._connections)

    def look_for_space(self) -> Steps[None]:
        """Let go of what may go where the disk was full, and checkpoint if it is time."""
        self._checkpoint_postponed = False
        if self._space_sought:
            self._space_sought = False
            yield from self.log.retain(self.now_ms())
        if self.log.checkpoint_due:
            self._begin_checkpoint()
