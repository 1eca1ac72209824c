"""The relay: brings committed messages into the log, once and in order, until it is told to stop.

Each shard has a thread, with its own publisher and transactions; the thread that runs the relay waits for new messages
and wakes them, and prolongs the relay's lease. A second relay for the same database takes the shards over, and the
first one ends with an error that says so; or it stands by until the first one's lease is over. The lease only says who
should publish: that no other one can is in the fence. A relay must never end because the database or the brokers are
away for a time.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import NoneType
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from semel.database import UnknownDatabase, within
from semel.database.clock import Clock, now_ms, time_by
from semel.database.dialects import dialect_of
from semel.database.engines import prompt, read_only
from semel.database.kinds import WrongKind, check_callable, check_engine, check_kind
from semel.outbox import layout, ledger, processes
from semel.outbox.bell import FALLBACK_SECONDS, Bell, sleeper_for
from semel.outbox.counters import FENCED, PUBLISHED
from semel.outbox.errors import RelayFailed, RelayFenced, RelayRefused
from semel.outbox.layout import SHARDS_MAX, Layout
from semel.outbox.ledger import BATCH_ROWS_MAX, Batch, Owner, Size
from semel.outbox.messages import obstacle_of_topic
from semel.outbox.sender import Divided, Send, Sender
from semel.outbox.shard import DATABASE, Patience, PatienceOver, Shard, Stopped
from semel.publish import Publisher, PublishRefused
from semel.retries.budget import PROCESS_BUDGET, RetryBudget

# A batch is one transaction of the database and one of the log, which cost some milliseconds even for one row: four
# times as many rows made a lagging relay 1.3 times as fast. But a transaction has to stay short, because readers wait
# for its end.
BATCH_ROWS: Final = 2000
# The most bytes that a batch holds in memory, unless one message is larger.
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
# How long a call to the brokers may take before the relay says that it waits.
TIMEOUT_SECONDS: Final = 10.0
# How long a drain waits for a database or brokers that are away: most of them restart within this time.
DRAIN_WAIT_SECONDS: Final = 60.0
# A call to the brokers takes no longer than a drain may wait, but at least this long, so that it can succeed.
CALL_SECONDS_MIN: Final = 1.0
# The pause after a batch that was not full, so that the next one gets more messages: otherwise each of many small
# transactions would become a batch of its own, and the application's commits would wait for theirs.
_BETWEEN_SECONDS: Final = 0.02
# When the relay is stopped, a running batch gets this long to end; if it is interrupted, the next start finds out what
# happened.
STOP_SECONDS: Final = 5.0
# A relay that stands by takes over this long after the one that publishes has died; a living one renews its lease three
# times.
LEASE_MS: Final = 30_000
# How often a relay that stands by looks at the lease.
_LOOK_SECONDS_MAX: Final = 1.0
# How long to wait for a topic that does not exist: as long as a new topic takes to be known everywhere. The messages
# after it wait, too.
_CLIENT: Final[Mapping[str, Any]] = {"topic.metadata.propagation.max.ms": 5_000}
_BOOTSTRAP: Final = "bootstrap.servers"

logger = logging.getLogger("semel.outbox")


class Progress(NamedTuple):
    """What this relay has done since its start."""

    messages: int = 0
    batches: int = 0
    # The time between adding and publishing the last message.
    lag_ms: int = 0
    # What is away, and why; None if nothing is.
    waits_for: str | None = None


@contextlib.contextmanager
def _fence_counted() -> Iterator[None]:
    """Count a relay that ends because another one has taken a shard: once, even if several of its threads find out."""
    try:
        yield
    except RelayFenced:
        FENCED.add()
        raise


class Relay:
    """Publishes the messages that committed transactions have added to one database.

    `engine` is best made by `semel.database.engine_of`. `kafka` is an address, or a configuration of librdkafka's with
    "bootstrap.servers" in it. With `send` in its place each message goes through this function, at least once, with the
    same id each time; with `send={topic: function}` beside `kafka` messages of these topics do, and all others go into
    the log. The first relay of a database sets `name` and `shards`, and None keeps them; another number of
    `shards` changes it.
    """

    def __init__(
        self,
        engine: Engine,
        kafka: str | Mapping[str, Any] | None = None,
        *,
        send: Send | Mapping[str, Send] | None = None,
        name: str | None = None,
        shards: int | None = None,
        batch_rows: int = BATCH_ROWS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        lease_ms: int = LEASE_MS,
        budget: RetryBudget = PROCESS_BUDGET,
        clock: Clock = now_ms,
    ) -> None:
        try:
            check_engine("the engine of a relay", engine)
            check_kind("kafka", kafka, (str, Mapping, NoneType))
            for one in send.values() if isinstance(send, Mapping) else () if send is None else (send,):
                check_callable("send", one)
            check_kind("name", name, (str, NoneType))
            check_kind("shards", shards, (int, NoneType))
            check_kind("batch_rows", batch_rows, int)
            check_kind("timeout_seconds", timeout_seconds, (int, float))
            check_kind("lease_ms", lease_ms, int)
            check_kind("budget", budget, RetryBudget)
            check_callable("clock", clock)
        except (WrongKind, UnknownDatabase) as error:
            raise RelayRefused(str(error)) from None
        if shards is not None and not 1 <= shards <= SHARDS_MAX:
            raise RelayRefused(f"{shards} shards cannot be: there are 1 to {SHARDS_MAX}")
        if lease_ms < 1:
            raise RelayRefused(f"a lease of {lease_ms} ms cannot be: it lasts a millisecond at least")
        if not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise RelayRefused(f"batches of {batch_rows} messages cannot be: they have 1 to {BATCH_ROWS_MAX}")
        self._engine = prompt(engine)
        self._sends: Mapping[str, Send] = send if isinstance(send, Mapping) else {}
        self._send: Send | None = None if isinstance(send, Mapping) else send
        if (kafka is None) == (self._send is None):
            raise RelayRefused(
                "a relay publishes into a log or sends through a function: hand over kafka or send, or for some topics "
                "kafka and send={topic: function}"
            )
        for topic in self._sends:
            if (obstacle := obstacle_of_topic(topic)) is not None:
                raise RelayRefused(f"{topic!r} {obstacle}")
        client = {_BOOTSTRAP: kafka} if isinstance(kafka, str) else dict(kafka or {})
        self._bootstrap = str(client.pop(_BOOTSTRAP, ""))
        if not self._bootstrap and self._send is None:
            raise RelayRefused(f"there is no address of a broker: hand over one, or settings with {_BOOTSTRAP!r}")
        self._client = {**_CLIENT, **client}
        self._name, self._count = name, shards
        self._size = Size(batch_rows, BATCH_BYTES_MAX)
        self._timeout_seconds = timeout_seconds
        self._lease_ms = lease_ms
        self._leased_at_seconds = float("-inf")
        # The relay that has the lease, while this one stands by.
        self._stands_by_for: str | None = None
        self._shards: list[Shard] = []
        self._fallback_seconds = FALLBACK_SECONDS
        self._make_publisher: Callable[..., Publisher] = Publisher
        self._budget = budget
        self._clock = clock
        self._life = secrets.token_hex(8)
        self._owner_name = processes.own_name()
        self._stopping = threading.Event()
        self._bell = Bell()
        self._mutex = threading.Lock()
        self._progress = Progress()
        self._patiences: list[Patience] = []
        # How long to wait for a database or brokers that are away; None means no limit.
        self._patience_seconds: float | None = None
        self._failure: BaseException | None = None
        self._check_settings()

    @_fence_counted()
    def run(self, *, stands_by: bool = False, stop_seconds: float = STOP_SECONDS) -> None:
        """Publish the waiting messages and those that are added later, until `stop`; then a batch that is under way has
        `stop_seconds` to end. A relay that `stands_by` begins when no other one has the lease."""
        try:
            known = self._prepared(stands_by=stands_by)
        except Stopped:
            return
        self._shards = [self._shard(number, known) for number in range(known.shards)]
        threads = [
            threading.Thread(
                target=self._guarded, args=(partial(self._serve, shard),), name=f"semel-outbox-{number}", daemon=True
            )
            for number, shard in enumerate(self._shards)
        ]
        for thread in threads:
            thread.start()
        try:
            self._guarded(self._wake)
        finally:
            self.stop()
            until = time.monotonic() + stop_seconds
            for thread in threads:
                thread.join(max(until - time.monotonic(), 0.0))
            # What is away now has the lease until it is over.
            with contextlib.suppress(SQLAlchemyError), self._begun() as connection:
                ledger.prolong(connection, self._life, None)
        if self._failure is not None:
            raise self._failure

    @_fence_counted()
    def drain(self, wait_seconds: float = DRAIN_WAIT_SECONDS) -> int:
        """Publish the waiting messages in this thread, do not wait for more, and return how many were published.

        RelayFailed if the database or the brokers are away for longer than `wait_seconds`.
        """
        before = self._progress.messages
        self._patience_seconds = wait_seconds
        try:
            with contextlib.suppress(Stopped):
                self._drain()
        except PatienceOver as over:
            count = self._progress.messages - before
            raise RelayFailed(
                f"{over}. {count} messages were published before that, and the others wait in the database: drain again"
            ) from over
        finally:
            self._patience_seconds = None
        return self._progress.messages - before

    def _drain(self) -> None:
        known = self._prepared()
        for number in range(known.shards):
            with contextlib.closing(self._shard(number, known)) as shard:
                shard.open()
                while not self._stopping.is_set() and shard.step():
                    pass

    def stop(self) -> None:
        """Let `run` return; for any thread or a signal handler. A stopped relay stays stopped."""
        self._stopping.set()
        self._bell.ring()

    def progress(self) -> Progress:
        """From any thread."""
        waits = [waits_for for patience in self._patiences if (waits_for := patience.waits_for) is not None]
        with self._mutex:
            return self._progress._replace(waits_for=waits[0] if waits else None)

    @property
    def role(self) -> str:
        """`active`, or `standby` while another relay has the lease."""
        return "active" if self._stands_by_for is None else "standby"

    def why_not_ready(self, behind_seconds: float) -> str:
        """Why this relay does not publish as it should, in a line for a probe; empty if it does, or stands by. It asks
        the database and the brokers, from any thread."""
        waits_for = self.progress().waits_for
        if waits_for is not None:
            # What is away, and not the text of the error, which may have a password: a probe has no login.
            return f"waiting for {waits_for.partition(': ')[0]}: the log says why"
        with read_only(self._engine).connect() as connection:
            oldest_ms, at_ms = ledger.oldest_ms(connection), self._clock()
        if self._stands_by_for is not None:
            return ""
        if not self._shards or not all(shard.is_open for shard in self._shards):
            return "it has not taken over all shards yet"
        if not all(shard.are_brokers_there() for shard in self._shards):
            return "waiting for the brokers: they do not answer"
        age_seconds = 0.0 if oldest_ms is None else (at_ms - oldest_ms) / 1000
        return f"behind: the oldest message waits for {age_seconds:.0f} s" if age_seconds > behind_seconds else ""

    # -- the beginning -----------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        if self._send is not None:
            return
        try:
            self._publisher(self._name or layout.NAME_DEFAULT)
        except PublishRefused as error:
            raise RelayRefused(str(error)) from error

    def _prepared(self, *, stands_by: bool = False) -> Layout:
        """Settle the name and the number of shards, and change that number if another one was asked for."""
        # The earlier drains of this relay have ended, so nothing waits for them.
        self._patiences = []
        patience = self._new_patience()
        known = patience.with_database(self._settled)
        if stands_by:
            self._stand_by(patience)
            known = patience.with_database(self._settled)
        if self._count is None or self._count == known.shards:
            return known
        shards = [self._shard(number, known) for number in range(known.shards)]
        for shard in shards:
            with contextlib.closing(shard):
                shard.open()
                shard.settle()
        count = self._count

        def change() -> None:
            with self._begun() as connection:
                layout.change(connection, count, dict.fromkeys(range(known.shards), self._life))

        patience.with_database(change)
        return known._replace(shards=count)

    def _stand_by(self, patience: Patience) -> None:
        while (holder := patience.with_database(self._lease)) is not None:
            if self._stands_by_for is None:
                logger.info("standing by: the relay of %s has the lease", holder)
            self._stands_by_for = holder
            if self._stopping.wait(min(_LOOK_SECONDS_MAX, self._lease_ms / 3000)):
                raise Stopped
        self._stands_by_for = None

    def _lease(self) -> str | None:
        with self._begun() as connection:
            at_ms = time_by(self._clock, connection)
            until_ms = at_ms + self._lease_ms
            return ledger.lease(connection, self._life, self._owner_name, processes.is_dead, at_ms, until_ms)

    def _settled(self) -> Layout:
        with self._begun() as connection:
            return layout.settled(connection, self._name, self._count)

    def _shard(self, number: int, known: Layout) -> Shard:
        owner, send, patience = Owner(number, known.shards, self._life), self._send, self._new_patience()

        def look() -> int:
            with self._begun() as connection:
                return ledger.standing(connection, owner).done_batch

        def make() -> Divided | Sender:
            # The number of a message is one in the whole outbox.
            if send is None:
                return Divided(self._publisher(known.publisher_name(number)), self._sends, known.outbox_name)
            return Sender(send, known.outbox_name, lambda: patience.with_database(look))

        return Shard(
            owner,
            self._owner_name,
            self._begun,
            make,
            patience,
            self._size,
            self._clock,
            self._count_batch,
        )

    def _publisher(self, name: str) -> Publisher:
        seconds = self._timeout_seconds
        if self._patience_seconds is not None:
            seconds = min(seconds, max(self._patience_seconds, CALL_SECONDS_MIN))
        return self._make_publisher(
            self._bootstrap, name, client=self._client, timeout_seconds=seconds, now_ms=self._clock
        )

    def _new_patience(self) -> Patience:
        self._patiences.append(Patience(self._stopping, self._patience_seconds, self._budget))
        return self._patiences[-1]

    # -- the threads -------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        """An error in one thread ends all of them; `run` raises the first one."""
        try:
            work()
        except Stopped:
            return
        except BaseException as error:
            with self._mutex:
                self._failure = self._failure or error
            self.stop()

    def _serve(self, shard: Shard) -> None:
        with contextlib.closing(shard):
            shard.open()
            while not self._stopping.is_set():
                rings = self._bell.rings
                if not shard.step():
                    self._bell.wait_after(rings, self._fallback_seconds)
                elif not shard.is_behind:
                    self._stopping.wait(_BETWEEN_SECONDS)

    def _wake(self) -> None:
        patience = self._new_patience()
        while not self._stopping.is_set():
            patience.with_database(partial(self._listen, patience))

    def _listen(self, patience: Patience) -> None:
        sleeper = sleeper_for(self._engine, self._bell, self._stopping, self._fallback_seconds)
        with contextlib.closing(sleeper):
            patience.is_back(DATABASE)
            while not self._stopping.is_set():
                self._prolong()
                sleeper.wait()
                self._bell.ring()

    def _prolong(self) -> None:
        now = time.monotonic()
        if now - self._leased_at_seconds < self._lease_ms / 3000:
            return
        with self._begun() as connection:
            has_some = ledger.prolong(connection, self._life, time_by(self._clock, connection) + self._lease_ms)
        if has_some:
            self._leased_at_seconds = now

    def _count_batch(self, batch: Batch) -> None:
        self._bell.count_done()
        self._budget.earn()
        PUBLISHED.add(by=len(batch.records))
        now_ms = self._clock()
        with self._mutex:
            done = self._progress
            self._progress = done._replace(
                messages=done.messages + len(batch.records),
                batches=done.batches + 1,
                lag_ms=now_ms - (batch.records[-1].timestamp_ms or 0) if batch.records else done.lag_ms,
            )

    @contextlib.contextmanager
    def _begun(self) -> Iterator[Connection]:
        """A new transaction, checked to be one in which a batch number cannot be lost.

        A statement that has waited for a lock must see what was committed meanwhile. So the isolation level is set, and
        on the connection: in SQLAlchemy, an option of the application's engine wins over that of an engine that is made
        from it.
        """
        isolation = dialect_of(self._engine).isolation
        with self._engine.connect() as connection:
            if isolation is not None:
                connection.execution_options(isolation_level=isolation)
            with connection.begin(), within(connection):
                yield connection
