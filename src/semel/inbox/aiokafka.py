"""The loop over aiokafka and an AsyncEngine.

Here a rebalance can happen while a handler runs. It waits for that message, whose offset is committed before the
partition is revoked; a message that was fetched and not begun is dropped.
"""

import asyncio
import contextlib
import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from semel.database import keep_open_async, within_async
from semel.database.effects import effects_on
from semel.database.kinds import WrongKind, check_callable
from semel.database.procedures import drive_async
from semel.inbox.admission import Due
from semel.inbox.brokers import ASK_SECONDS, NO_BROKER, NO_TOPIC_SEEN, Brokers, LoopFailed, checked_config
from semel.inbox.events import Message, Outcome
from semel.inbox.loop import POLL_SECONDS, Loop, Place, engine_behind
from semel.publish.clients import NO_WAY_THERE, lacking

# With an engine, a handler gets an AsyncConnection; with an async_sessionmaker, an AsyncSession.
AsyncHandler = Callable[[Any, Message], Awaitable[object]]
# For the words with which a handler is refused.
_HANDLER: Final = "the handler of an AsyncInbox"


class AsyncInbox(Loop[AsyncEngine | async_sessionmaker[Any]]):
    """The loop over aiokafka. For SQLite, call `semel.database.begin_immediately(engine.sync_engine)` first."""

    async def run(self, handler: AsyncHandler, kafka: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Consume `topics` until `stop`; `kafka` are the arguments of an AIOKafkaConsumer."""
        check_callable(_HANDLER, handler, may_wait=True)
        brokers = Brokers(self._clock)
        await drive_async(self._run(handler, _Client(self, brokers, kafka, topics), brokers))

    async def take(self, handler: AsyncHandler, message: Message) -> Outcome | None:
        """The outcome of this message, committed and counted; None if `stop` came before it was known."""
        return await drive_async(self._take(handler, message))

    async def retry_due(self, handler: AsyncHandler) -> None:
        """Retry once each message that a person has marked, in the order in which they were put aside."""
        await drive_async(self._retry_due(handler))

    async def _handle(self, work: Callable[[Connection], Due | None], handler: AsyncHandler) -> Due | None:
        async with self._database.begin() as handle:
            due = await within_async(handle, work)
            if due is not None and due.outcome:
                transaction = await keep_open_async(handle)
                try:
                    with effects_on(transaction):
                        await _awaitable(handler(handle, due.message))
                    await transaction.check()
                finally:
                    transaction.release()
            return due

    @staticmethod
    def _engine_of(database: Any) -> Any:
        _aiokafka()
        return engine_behind(database, AsyncEngine, async_sessionmaker, "AsyncInbox")

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _awaitable(result: Any) -> Awaitable[object]:
    if not inspect.isawaitable(result):
        raise WrongKind(f"{_HANDLER} has to be a coroutine function: write `async def`, or run an Inbox")
    return result


class _Client:
    """A consumer of aiokafka, as the loop uses it. Each operation is a coroutine."""

    def __init__(self, loop: AsyncInbox, brokers: Brokers, kafka: Mapping[str, Any], topics: Sequence[str]) -> None:
        self._loop = loop
        self._brokers = brokers
        self._topics = topics
        # Held while a message is handled: a rebalance waits for it.
        self._working = asyncio.Lock()
        self._consumer = _aiokafka().AIOKafkaConsumer(**for_aiokafka(kafka))

    async def start(self) -> None:
        with _refusals():
            await self._consumer.start()
            # If a client is started with its topics, it waits for missing ones, and then gives up.
            self._consumer.subscribe(list(self._topics), listener=self._listener())

    async def poll(self) -> Message | None:
        with _refusals():
            records_by_place = await _fetched(self._consumer)
        for place, records in records_by_place.items():
            await self._working.acquire()
            # A rebalance may have happened before the lock was acquired.
            if place in self._consumer.assignment():
                return message_of(records[0])
            self._working.release()
        return None

    def release(self) -> None:
        self._working.release()

    def read_again(self, message: Message) -> None:
        with _refusals():
            self._consumer.seek(_partition(message.place), message.offset)

    async def commit(self, offsets: Mapping[Place, int]) -> bool:
        errors = _aiokafka().errors
        try:
            await self._consumer.commit({_partition(place): offset for place, offset in offsets.items()})
        except (errors.CommitFailedError, errors.IllegalStateError):
            # Another consumer has the partitions; the done messages are duplicates for it.
            return True
        except errors.KafkaError as error:
            if error.retriable:
                return False
            raise LoopFailed(f"the broker refuses the offsets: {error}{_lacking(error)}") from error
        return True

    async def what_is_wrong(self) -> str | None:
        try:
            known = await asyncio.wait_for(self._consumer.topics(), ASK_SECONDS)
        except (_aiokafka().errors.KafkaError, TimeoutError) as error:
            return NO_BROKER.format(str(error) or type(error).__name__, NO_WAY_THERE)
        missing = [topic for topic in self._topics if topic not in known]
        return NO_TOPIC_SEEN.format(missing[0]) if missing else None

    async def leave(self) -> None:
        await self._consumer.stop()

    async def give_up(self, places: Sequence[Place]) -> None:
        self._brokers.take_partitions()
        async with self._working:
            await drive_async(self._loop.give_up(self, places))

    def _listener(self) -> Any:
        """aiokafka needs a subclass of its own class."""
        client = self
        listener_class: Any = _aiokafka().ConsumerRebalanceListener

        class Listener(listener_class):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                await client.give_up([(one.topic, one.partition) for one in revoked])

            async def on_partitions_assigned(self, assigned: object) -> None:
                """Each partition begins at its last commit."""
                client._brokers.give_partitions()

        return Listener()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except _aiokafka().errors.KafkaError as error:
        raise LoopFailed(f"the broker refuses to be read: {error}{_lacking(error)}") from error


def for_aiokafka(settings: Mapping[str, Any]) -> dict[str, Any]:
    config = checked_config(settings, "group_id", "enable_auto_commit")
    for name in ("key_deserializer", "value_deserializer"):
        if config.get(name) is not None:
            raise LoopFailed(f"{name} would fail where nothing can be put aside: decode in identity and in the handler")
    # Records of aborted transactions are no events; aiokafka, unlike the other client, shows them by default.
    defaults = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    return {**defaults, **config, "enable_auto_commit": False}


async def _fetched(client: Any) -> Any:
    """At most one record. After a record that it cannot decode, this client cannot continue, whatever its settings."""
    try:
        return await client.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=1)
    except UnicodeDecodeError as error:
        raise LoopFailed(
            "a header has a name that is not UTF-8, and aiokafka reads neither its record nor those beside it: "
            "run Inbox, which puts it aside, in this group until it is past it"
        ) from error


def _lacking(error: Any) -> str:
    """The right that is missing; empty if the error is not about rights. The client names one thing, or a set."""
    if not isinstance(error, _aiokafka().errors.BrokerResponseError):
        # The error comes from the client, not from a broker.
        return ""
    refused = error.args[0] if error.args else None
    return lacking(error.errno, "Read", min(refused) if isinstance(refused, set) else refused)


def _aiokafka() -> Any:
    """aiokafka has no types, and only users of this loop need it."""
    try:
        return importlib.import_module("aiokafka")
    except ImportError:
        raise LoopFailed("AsyncInbox needs aiokafka, which is missing: pip install aiokafka") from None


def _partition(place: Place) -> Any:
    return _aiokafka().TopicPartition(*place)


def message_of(received: Any) -> Message:
    # The time at which the broker stored a record (type 1 here) is not the event's time.
    timestamp_ms = received.timestamp if received.timestamp_type == 0 and received.timestamp >= 0 else None
    return Message(
        received.topic,
        received.partition,
        received.offset,
        received.key,
        received.value,
        tuple(received.headers),
        timestamp_ms,
    )
