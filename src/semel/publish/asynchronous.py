"""The publisher for asyncio: the same, in one worker thread, so that calls keep their order and the loop goes on.

A call that is cancelled before its turn has done nothing. One that is cancelled under way goes on in the thread until
its outcome is known; the next call waits for it, and `last()` says what came of it.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar, Unpack

from semel.publish.claims import Outcome
from semel.publish.errors import PublishRefused
from semel.publish.publisher import Claim, Options, Publisher
from semel.publish.record import Record

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
        """Let go of the connections, after whatever is under way."""
        if not self._is_closed:
            self._is_closed = True
            closing = asyncio.wrap_future(self._worker.submit(self._publisher.close))
            self._worker.shutdown(wait=False)
            # Who is cancelled here need not wait, but the connections are let go of all the same.
            await asyncio.shield(closing)

    async def last(self) -> int:
        """The last number that was published, -1 if there is none."""
        return await self._run(self._publisher.last)

    async def publish(self, number: int, *records: Record) -> Outcome:
        """Publish records under a number: all of them, once."""
        return await self._run(lambda: self._publisher.publish(number, *records))

    async def publish_many(self, claims: Iterable[Claim]) -> list[Outcome]:
        """Publish several numbers in one transaction."""
        claims = list(claims)
        return await self._run(lambda: self._publisher.publish_many(claims))

    def _run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self._is_closed:
            raise PublishRefused("this publisher was closed")
        return asyncio.wrap_future(self._worker.submit(work))
