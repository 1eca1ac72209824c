"""The consumer's loop over aiokafka and an AsyncEngine: as the other one, with the same rules and the same order.

Here a rebalance comes while a handler is at work. It waits for the message at hand, whose offset is committed before
the partition goes; a message that was fetched and not begun is dropped. This must never commit an offset before the
database has committed.
"""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from semel.database import check_unbroken, within_async
from semel.inbox import asides
from semel.inbox.admission import reason_of
from semel.inbox.asides import State
from semel.inbox.attempts import Attempts
from semel.inbox.brokers import ASK_SECONDS, NO_BROKER, NO_TOPIC_SEEN, Brokers
from semel.inbox.errors import LoopFailed
from semel.inbox.identities import Version
from semel.inbox.looping import Looping
from semel.inbox.messages import Message
from semel.inbox.outcomes import Outcome
from semel.inbox.progress import Place
from semel.inbox.reaper import reap_async
from semel.inbox.settings import DUE_COUNT_MAX, DUE_MS_MAX, POLL_SECONDS, for_aiokafka
from semel.publish.clients import NO_WAY_THERE, lacking

AsyncHandler = Callable[[AsyncConnection, Message], Awaitable[object]]


class AsyncInbox(Looping[AsyncEngine]):
    """The loop over aiokafka. Of an engine for SQLite, hand its `sync_engine` to `semel.database.begin_immediately`."""

    async def run(self, handler: AsyncHandler, kafka: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Consume `topics` until `stop`; `kafka` are the arguments of an AIOKafkaConsumer."""
        aiokafka = _aiokafka()
        client = aiokafka.AIOKafkaConsumer(**for_aiokafka(kafka))
        working = asyncio.Lock()
        brokers = self._brokers = Brokers(self._clock)
        try:
            await client.start()
            # A client that is started with its topics waits for those that are missing, and then gives up.
            client.subscribe(list(topics), listener=_listener(self, client, working))
            while not self._is_stopping:
                await self._look_after(handler)
                fetched = await _fetched(client)
                for place, records in fetched.items():
                    async with working:
                        # A rebalance may have come before the lock did.
                        if place in client.assignment():
                            await self._consume(client, handler, message_of(records[0]))
                if not fetched or self._progress.is_due:
                    await self._commit(client)
                if fetched:
                    brokers.are_well()
                else:
                    # This client does not say what it meets.
                    brokers.doubt()
                    if brokers.is_time_to_ask():
                        brokers.tell(await _wrong_with(client, topics))
        except aiokafka.errors.KafkaError as error:
            raise LoopFailed(f"the broker refuses to be read: {error}{_lacking(error)}") from error
        finally:
            # Whatever ended the loop is more important than what the broker says to this.
            with contextlib.suppress(aiokafka.errors.KafkaError, LoopFailed):
                await self._commit(client)
            await client.stop()

    async def take(self, handler: AsyncHandler, message: Message) -> Outcome | None:
        """What became of this message, committed and counted; None where `stop` came before that was known."""
        outcome = await self._settle(handler, message)
        while outcome is None and not self._is_stopping:
            outcome = await self._settle(handler, message)
        self._count(outcome)
        return outcome

    async def retry_due(self, handler: AsyncHandler) -> None:
        """Try what a person wants to be tried again, in the order in which it was put aside, each once."""
        async with self._waiting_out():
            await self._retry_until(handler, await self._due_numbers(), None)

    # -- a message ---------------------------------------------------------------------------------------------------

    async def _consume(self, client: Any, handler: AsyncHandler, message: Message) -> None:
        outcome = await self._settle(handler, message)
        if outcome is not None:
            self._count(outcome)
            self._progress.note(message)
        elif not self._is_stopping:
            # Poll for it once more: who does not poll loses his partitions, however long the outage is.
            client.seek(_partition(message.place), message.offset)

    async def _settle(self, handler: AsyncHandler, message: Message) -> Outcome | None:
        """None where `stop` came before it was known, or something is in the way for longer than a poll may wait."""
        attempts = self._new_attempts()
        while True:
            try:
                outcome = await self._attempt(handler, message, attempts)
            except Exception as error:
                wait_seconds = attempts.wait_seconds(error)
            else:
                self._outage.is_over()
                return outcome
            if self._is_stopping:
                return None
            await asyncio.sleep(wait_seconds)
            if attempts.are_held_up:
                return None

    async def _attempt(self, handler: AsyncHandler, message: Message, attempts: Attempts) -> Outcome:
        identity = self._admission.identity_of(message)
        async with self._engine.begin() as connection:
            outcome = await within_async(connection, lambda given: self._admit(given, message, identity, attempts))
            if outcome:
                await handler(connection, message)
                await connection.run_sync(check_unbroken)
        return outcome

    def _admit(
        self, connection: Connection, message: Message, identity: str | Version | Exception, attempts: Attempts
    ) -> Outcome:
        if isinstance(identity, Exception):
            return self._admission.put_undecodable(connection, message, identity)
        if attempts.failure is not None and attempts.are_used_up:
            return self._admission.put_aside(connection, message, identity, attempts.failure, attempts.failed)
        return self._admission.take(connection, message, identity)

    # -- what is done from time to time ------------------------------------------------------------------------------

    async def _look_after(self, handler: AsyncHandler) -> None:
        async with self._waiting_out():
            if self._retrying.is_due():
                await self._retry_for_a_while(handler)
            if self._reaping.is_due():
                await reap_async(
                    self._engine, consumer=self._admission.consumer, retention_ms=self._retention_ms, clock=self._clock
                )

    @contextlib.asynccontextmanager
    async def _waiting_out(self) -> AsyncIterator[None]:
        """What is in the way leaves the rest for later."""
        try:
            yield
        except Exception as error:
            await asyncio.sleep(self._outage_seconds(error))

    async def _retry_for_a_while(self, handler: AsyncHandler) -> None:
        """The rest waits until the broker has heard of us."""
        until_ms = self._clock() + DUE_MS_MAX
        if not await self._retry_until(handler, await self._due_numbers(), until_ms):
            self._retrying.make_due()

    async def _retry_until(self, handler: AsyncHandler, numbers: Sequence[int], until_ms: int | None) -> bool:
        """Whether all of them were tried in time, and nothing is in the way."""
        for number in numbers:
            if self._is_stopping or (until_ms is not None and self._clock() >= until_ms):
                return False
            await self._retry(handler, number)
        return True

    async def _due_numbers(self) -> list[int]:
        async with self._engine.begin() as connection:
            return await connection.run_sync(asides.due_numbers, self._admission.consumer, DUE_COUNT_MAX)

    async def _retry(self, handler: AsyncHandler, number: int) -> None:
        """What passes by itself is raised, and leaves it due."""
        try:
            async with self._engine.begin() as connection:
                retaken = await within_async(connection, lambda given: self._admission.retake(given, number))
                if retaken is not None and retaken.outcome:
                    await handler(connection, retaken.message)
                    await connection.run_sync(check_unbroken)
        except Exception as error:
            if self._passing(error):
                raise
            async with self._engine.begin() as connection:
                await connection.run_sync(asides.hold_again, number, State.DUE, reason_of(error))
            return
        self._outage.is_over()
        if retaken is not None:
            self._count_retried()

    # -- the broker --------------------------------------------------------------------------------------------------

    async def _commit(self, client: Any, places: Iterable[Place] | None = None) -> None:
        """Tell the broker how far the database has come, in these partitions or all, and wait until it knows."""
        errors = _aiokafka().errors
        offsets = self._progress.offsets()
        if places is not None:
            offsets = {place: offsets[place] for place in places if place in offsets}
        if not offsets:
            return
        try:
            await client.commit({_partition(place): offset for place, offset in offsets.items()})
        except (errors.CommitFailedError, errors.IllegalStateError):
            # They are somebody else's, who finds what was done to be duplicates.
            pass
        except errors.KafkaError as error:
            if error.retriable:
                return
            raise LoopFailed(f"the broker refuses the offsets: {error}{_lacking(error)}") from error
        self._progress.forget(offsets)

    def give_partitions(self) -> None:
        self._brokers.give_partitions()

    def take_partitions(self) -> None:
        self._brokers.take_partitions()

    async def give_up(self, client: Any, places: Sequence[Place]) -> None:
        """The partitions are about to go: what is done in them is committed now, or delivered to somebody else."""
        with contextlib.suppress(LoopFailed):
            await self._commit(client, places)
        self._progress.forget(places)


async def _fetched(client: Any) -> Any:
    """One record at most. This client cannot read behind one that it cannot decode, whatever it is told."""
    try:
        return await client.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=1)
    except UnicodeDecodeError as error:
        raise LoopFailed(
            "a header has a name that is not UTF-8, and aiokafka reads neither its record nor those beside it: "
            "run Inbox, which puts it aside, in this group until it is past it"
        ) from error


async def _wrong_with(client: Any, topics: Sequence[str]) -> str | None:
    """What a broker says of the topics, or that there is none to say anything."""
    try:
        known = await asyncio.wait_for(client.topics(), ASK_SECONDS)
    except (_aiokafka().errors.KafkaError, TimeoutError) as error:
        return NO_BROKER.format(str(error) or type(error).__name__, NO_WAY_THERE)
    missing = [topic for topic in topics if topic not in known]
    return NO_TOPIC_SEEN.format(missing[0]) if missing else None


def _lacking(error: Any) -> str:
    """The right that is missing; nothing where that is not what it is about. The client names one thing, or a set."""
    if not isinstance(error, _aiokafka().errors.BrokerResponseError):
        # The client's own: no broker has said so.
        return ""
    refused = error.args[0] if error.args else None
    return lacking(error.errno, "Read", min(refused) if isinstance(refused, set) else refused)


def _aiokafka() -> Any:
    """It comes without types, and only who uses this loop needs it."""
    try:
        return importlib.import_module("aiokafka")
    except ImportError:
        raise LoopFailed("AsyncInbox.run needs aiokafka, which is missing: pip install aiokafka") from None


def _listener(inbox: AsyncInbox, client: Any, working: asyncio.Lock) -> Any:
    """aiokafka wants an object of a class of its own."""
    listener_class: Any = _aiokafka().ConsumerRebalanceListener

    class Listener(listener_class):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            inbox.take_partitions()
            async with working:
                await inbox.give_up(client, [(one.topic, one.partition) for one in revoked])

        async def on_partitions_assigned(self, assigned: object) -> None:
            """Each begins where its last commit says."""
            inbox.give_partitions()

    return Listener()


def _partition(place: Place) -> Any:
    return _aiokafka().TopicPartition(*place)


def message_of(received: Any) -> Message:
    # The time at which the broker stored it (type 1 here) says nothing of the event.
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
