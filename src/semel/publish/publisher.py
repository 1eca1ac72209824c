"""The publisher: it claims a name, publishes numbers under it, and finds out whether a commit happened.

The guarantee is the order of a start: the publisher puts up the fence, reads the cursor, writes a note of this
instance, and reads the cursor below that note once more. If it does not know whether a commit happened, a new producer
does the same again, and the cursor says whether the number is in the log. A fenced publisher stays fenced: it must
never take a name back by itself.

The client blocks, so for asyncio the same publisher works in one thread: calls keep their order, and the event loop is
not blocked. A call that is cancelled before its turn does nothing. A call that is cancelled while it runs continues in
the thread until its outcome is known; the next call waits for it, and `last()` says whether the number was published.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self, TypedDict, TypeVar, Unpack

from confluent_kafka import KafkaException, Producer

from semel.publish.clients import NO_COORDINATOR, Deadline, lacking, settings_of
from semel.publish.counters import FENCED
from semel.publish.cursor_topic import PARTITION, CursorTopic, Undecided
from semel.publish.rules import (
    NOTHING,
    Cursor,
    CursorRefused,
    Fenced,
    Plan,
    PublishError,
    PublishFailed,
    PublishRefused,
    PublishUncertain,
    Receipt,
    Record,
    RecordRefused,
    encode,
    plan,
    this_instance,
)
from semel.publish.transaction import Client, FencedOff, Interrupted, Transaction, claim

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 60.0
# How long to look for the instance that fenced this one, to name it in the error: it writes its note soon after its
# start.
_WHO_SECONDS_MAX: Final = 2.0
# How long one such read may take: a busy cluster is slow to answer, and the name in the error is worth the wait.
_LOOK_SECONDS_MAX: Final = 10.0
_PAUSE_SECONDS: Final = 0.05

Publication = tuple[int, Sequence[Record]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Options(TypedDict, total=False):
    """The options of a publisher, besides its address and its name."""

    gaps: Literal["refuse", "allow"]
    timeout_seconds: float
    cursor_topic: str | None
    client: Mapping[str, Any] | None
    now_ms: Callable[[], int]


class Publisher:
    """Publishes records under the numbers of a name, each at most once and in order.

    `bootstrap` and `client` are librdkafka's; `client` may have any setting that does not break the promise. A call
    takes at most `timeout_seconds`, and as long again if it has to find out whether a commit happened. Threads may
    share a publisher; they take turns.
    """

    def __init__(
        self,
        bootstrap: str,
        name: str,
        *,
        gaps: Literal["refuse", "allow"] = "refuse",
        timeout_seconds: float = TIMEOUT_SECONDS,
        cursor_topic: str | None = None,
        client: Mapping[str, Any] | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self._settings = settings_of(
            bootstrap, name, gaps, timeout_seconds, cursor_topic, {} if client is None else client
        )
        self._now_ms = now_ms
        self._instance = this_instance(now_ms())
        self._cursor_topic = CursorTopic(self._settings)
        self._mutex = threading.Lock()
        # The one that was made last, until it is released.
        self._made: Client | None = None
        # None if there is no client to rely on: at first, and after an interruption.
        self._client: Client | None = None
        self._cursor = NOTHING
        # Whether the cursor's record has named this instance: then any other instance in it has fenced this one.
        self._is_noted = False
        # Why this instance could not write its note the last time.
        self._note_interrupted: str | None = None
        # The number whose commit was requested, until its result is known.
        self._uncertain: int | None = None
        self._ended: PublishError | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Claim the name, which fences the instance that had it. Without this, the first call claims it."""
        with self._calling():
            self._claimed(self._deadline())

    def close(self) -> None:
        """Close the connections. The name stays claimed until another publisher claims it."""
        with self._mutex:
            if self._client is not None:
                self._client.producer.close()
            self._ended = self._ended or PublishRefused(f"publisher {self._settings.name!r} was closed")
            self._client = None
            self._release()

    def last(self) -> int:
        """The last number that was published, -1 if there is none: continue with the next one."""
        with self._calling():
            self._claimed(self._deadline())
            return self._cursor

    def is_answered(self, seconds_max: float) -> bool:
        """Whether a broker answers within this time: for a probe, from any thread. It asks nobody while another call
        is under way, or before the name is claimed."""
        if not self._mutex.acquire(blocking=False):
            return True
        try:
            if self._client is not None:
                self._client.producer.list_topics(self._settings.topic, seconds_max)
        except KafkaException:
            return False
        finally:
            self._mutex.release()
        return True

    def publish(self, number: int, *records: Record) -> Receipt:
        """Publish records under a number: all of them, once. Without records, only the number is used up."""
        [receipt] = self.publish_many([(number, records)])
        return receipt

    def publish_many(self, publications: Iterable[Publication]) -> list[Receipt]:
        """Publish several numbers in one transaction; those that were published before are left out."""
        publications = [(number, tuple(records)) for number, records in publications]
        with self._calling():
            return list(self._publish(publications).receipts)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """One call at a time. It leaves no client that is not relied on: that would go on asking the brokers for its
        topics, which creates them again, for as long as anybody keeps the error of the call."""
        with self._mutex:
            try:
                yield
            finally:
                if self._client is None:
                    self._release()

    def _release(self) -> None:
        if self._made is not None:
            self._made.release()
            self._made = None

    def _publish(self, publications: Sequence[Publication]) -> Plan:
        deadline = self._deadline()
        client = self._claimed(deadline)
        settings = self._settings
        numbers = (number for number, _ in publications)
        outcome = plan(settings.name, self._cursor, numbers, gaps_allowed=settings.gaps_allowed)
        if Receipt.ACCEPTED not in outcome.receipts:
            return outcome
        records = [
            record
            for (_, of_number), receipt in zip(publications, outcome.receipts, strict=True)
            if receipt is Receipt.ACCEPTED
            for record in of_number
        ]
        while not self._commit(client, records, outcome.cursor, deadline):
            # A new producer makes the cursor final, and the cursor says whether the commit happened.
            client = self._claimed(self._deadline())
            if self._cursor == outcome.cursor:
                break
            if deadline.is_over:
                raise PublishFailed(
                    f"publisher {settings.name!r} could not publish number {outcome.cursor} within "
                    f"{settings.timeout_seconds} s, and none of its records were written: publish it again"
                )
        return outcome

    def _commit(self, client: Client, records: Sequence[Record], number: int, deadline: Deadline) -> bool:
        """One attempt; False if only the cursor can say whether it was committed."""
        transaction = Transaction(client, deadline)
        try:
            # The cursor is the second record, so that the client asks for its partition while it gets the others.
            transaction.write((*records[:1], self._cursor_record(number), *records[1:]))
            # If anything interrupts the commit, only the cursor knows its outcome.
            self._client = None
            self._uncertain = number
            transaction.commit()
        except FencedOff:
            self._end_fenced()
        except RecordRefused:
            if transaction.is_given_up:
                # The producer cannot be used any more. If it was the cursor that was refused, the note of a new one is
                # refused, too, and that error replaces this one.
                self._client = None
                self._claimed(self._deadline())
            raise
        except Interrupted as reason:
            logger.info("publisher %s: number %d was interrupted: %s", self._settings.name, number, reason)
            self._client = None
            return False
        self._stands(client, number)
        return True

    def _stands(self, client: Client, cursor: int) -> None:
        """Notes that the outcome is known, and that the cursor's record names this instance."""
        self._client = client
        self._cursor = cursor
        self._uncertain = None
        self._is_noted = True

    def _claimed(self, deadline: Deadline) -> Client:
        """The producer; the cursor was read after its fence."""
        if self._ended is not None:
            # Without the frames of the calls before, which would all stay in memory, and their records with them.
            raise self._ended.with_traceback(None)
        if self._client is not None:
            return self._client
        # The clients are new, so a refused login of the former ones does not count for them.
        self._settings.events.forget()
        try:
            return self._claim(deadline)
        except PublishFailed as reason:
            if self._uncertain is None:
                raise
            raise PublishUncertain(self._settings.name, self._uncertain, str(reason)) from None
        finally:
            self._cursor_topic.disconnect()

    def _claim(self, deadline: Deadline) -> Client:
        self._note_interrupted = None
        while True:
            client = self._new_client()
            if not self._is_noted:
                self._cursor_topic.prepare(deadline)
            else:
                # If another instance has started meanwhile, find it before this one would fence it.
                self._check_owner(self._cursor_topic.peek(deadline))
            self._fence(client, deadline)
            cursor = self._read(client, deadline)
            if self._is_noted:
                self._check_owner(cursor)
            if self._note(client, cursor, deadline):
                return client
            if deadline.is_over:
                raise PublishFailed(
                    f"publisher {self._settings.name!r} could not note itself in topic {self._settings.topic!r}, and "
                    f"has published nothing since: {self._note_interrupted}"
                )

    def _note(self, client: Client, cursor: Cursor | None, deadline: Deadline) -> bool:
        """Write a note of this instance into the cursor, and before the commit, check that the cursor that was read is
        the last one below the note: a broker that is cut off from its cluster may have shown an older one. False if it
        has, and if it is unknown whether the note was committed; that does no harm, because the note has the cursor's
        number."""
        number = NOTHING if cursor is None else cursor.number
        transaction = Transaction(client, deadline)
        try:
            transaction.write([self._cursor_record(number)])
            if self._below(transaction, deadline) != cursor:
                transaction.abort()
                raise Interrupted("the cursor was shown by a broker that does not lead its topic any more")
            transaction.commit()
        except FencedOff:
            self._end_fenced()
        except RecordRefused as refused:
            raise CursorRefused(
                f"the cursor of publisher {self._settings.name!r} cannot be written to topic {self._settings.topic!r}: "
                f"{refused.reason}"
            ) from None
        except Interrupted as reason:
            logger.info("publisher %s: its note was interrupted: %s", self._settings.name, reason)
            self._note_interrupted = f"{reason}"
            return False
        self._stands(client, number)
        return True

    def _below(self, transaction: Transaction, deadline: Deadline) -> Cursor | None:
        """The last cursor below what the transaction wrote. If it cannot be read, the transaction is aborted."""
        try:
            return self._cursor_topic.read_below(transaction.last_offset, deadline)
        except BaseException as reason:
            with contextlib.suppress(Interrupted):
                transaction.abort()
            if isinstance(reason, Undecided):
                raise Interrupted(str(reason)) from None
            raise

    def _new_client(self) -> Client:
        self._release()
        try:
            self._made = Client(Producer(dict(self._settings.producer)))
        except KafkaException as error:
            raise PublishRefused(f"the settings of publisher {self._settings.name!r}: {error.args[0].str()}") from None
        return self._made

    def _fence(self, client: Client, deadline: Deadline) -> None:
        try:
            claim(client, deadline)
        except FencedOff:
            self._end_fenced()
        except Interrupted as reason:
            what = f"publisher {self._settings.name!r} could not be claimed"
            if reason.error and (right := lacking(reason.error.code(), "Write", self._settings.transactional_id)):
                raise CursorRefused(f"{what}: {reason}{right}") from None
            why = self._note_interrupted or self._settings.events.why(str(reason), NO_COORDINATOR)
            raise self._settings.events.failure(f"{what}: {why}") from None

    def _read(self, client: Client, deadline: Deadline) -> Cursor | None:
        """The cursor, when it is final. An open transaction before that may belong to a publisher that fenced this one
        and died."""
        while True:
            try:
                return self._cursor_topic.read(deadline)
            except Undecided:
                if deadline.is_over:
                    raise
            self._check_fence(client, deadline)

    def _check_fence(self, client: Client, deadline: Deadline) -> None:
        """Only a writer learns that it was fenced, so write a cursor, and abort it."""
        transaction = Transaction(client, deadline)
        try:
            transaction.write([self._cursor_record(NOTHING)])
            transaction.abort()
        except FencedOff:
            self._end_fenced()
        except Interrupted as reason:
            raise PublishFailed(f"publisher {self._settings.name!r} could not be claimed: {reason}") from None

    def _check_owner(self, cursor: Cursor | None) -> None:
        if cursor is None:
            raise CursorRefused(
                f"the cursor of publisher {self._settings.name!r} is gone from topic {self._settings.topic!r}: it was "
                "deleted, and nothing else knows how far the name was"
            )
        if cursor.instance != self._instance:
            self._end(Fenced(self._settings.name, cursor))

    def _end_fenced(self) -> NoReturn:
        """Ends this publisher as fenced. The instance that fenced it soon writes its note, which the error names."""
        deadline = Deadline(_WHO_SECONDS_MAX)
        while (by := self._somebody_else()) is None and not deadline.is_over:
            time.sleep(_PAUSE_SECONDS)
        self._end(Fenced(self._settings.name, by))

    def _somebody_else(self) -> Cursor | None:
        try:
            cursor = self._cursor_topic.peek(Deadline(min(_LOOK_SECONDS_MAX, self._settings.timeout_seconds)))
        except PublishError:
            return None
        return None if cursor is None or cursor.instance == self._instance else cursor

    def _end(self, error: PublishError) -> NoReturn:
        if isinstance(error, Fenced):
            FENCED.add()
        self._ended = error
        self._client = None
        self._cursor_topic.disconnect()
        raise error

    def _cursor_record(self, number: int) -> Record:
        cursor = Cursor(number, self._instance, self._now_ms())
        return Record(self._settings.topic, self._cursor_topic.key, encode(cursor), partition=PARTITION)

    def _deadline(self) -> Deadline:
        return Deadline(self._settings.timeout_seconds)


# -- for asyncio -------------------------------------------------------------------------------------------------------


T = TypeVar("T")


class AsyncPublisher:
    """A `Publisher` whose calls are awaited; it takes the same arguments."""

    def __init__(self, bootstrap: str, name: str, **options: Unpack[Options]) -> None:
        self._publisher = Publisher(bootstrap, name, **options)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"semel-publish-{name}")
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self._run(self._publisher.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, after the call that is running."""
        if not self._is_closed:
            self._is_closed = True
            closing = asyncio.wrap_future(self._worker.submit(self._publisher.close))
            self._worker.shutdown(wait=False)
            # A caller that is cancelled here need not wait; the connections are closed all the same.
            await asyncio.shield(closing)

    async def last(self) -> int:
        """The last number that was published, -1 if there is none."""
        return await self._run(self._publisher.last)

    async def publish(self, number: int, *records: Record) -> Receipt:
        """Publish records under a number: all of them, once."""
        return await self._run(lambda: self._publisher.publish(number, *records))

    async def publish_many(self, publications: Iterable[Publication]) -> list[Receipt]:
        """Publish several numbers in one transaction."""
        publications = list(publications)
        return await self._run(lambda: self._publisher.publish_many(publications))

    def _run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self._is_closed:
            raise PublishRefused("this publisher was closed")
        return asyncio.wrap_future(self._worker.submit(work))
