"""Makes an asynchronous store of an engine that blocks: each call runs in a thread, so that the event loop never
waits.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol, TypeVar

from semel.log.store.contract import (
    Buffer,
    Found,
    Listed,
    check_after,
    check_body,
    check_folder,
    check_key,
    check_range,
)

# The lease must not queue, nor the proofs that answers wait for. Beside them there may be the four creates of the
# journal, four of a checkpoint, and four reads of the cache, all of which are large.
CALLS_AT_ONCE_MAX: Final = 16

Result = TypeVar("Result")


class BlockingStore(Protocol):
    """The same five calls, made by many threads at once. Keys, bodies and ranges have been checked."""

    def create(self, key: str, body: Buffer) -> str: ...

    def replace(self, key: str, body: Buffer, version: str) -> str: ...

    def get(self, key: str) -> Found: ...

    def get_range(self, key: str, start: int, size: int) -> bytes: ...

    def list(self, folder: str, after: str = "") -> Iterator[list[Listed]]:
        """The listing page by page."""
        ...

    def delete(self, key: str) -> None: ...

    def cut_short(self, thread: int) -> None:
        """Nobody waits for the call in this thread any more: end it soon, if that is possible. This must not wait."""
        ...

    def close(self) -> None: ...

    def describe(self) -> str: ...


class ThreadedStore:
    """A `Store` over a `BlockingStore`."""

    def __init__(self, engine: BlockingStore) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE_MAX, thread_name_prefix="semel-store")

    async def create(self, key: str, body: Buffer) -> str:
        return await self._run(partial(self._engine.create, check_key(key), check_body(body)))

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        return await self._run(partial(self._engine.replace, check_key(key), check_body(body), version))

    async def get(self, key: str) -> Found:
        return await self._run(partial(self._engine.get, check_key(key)))

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        check_range(start, size)
        return await self._run(partial(self._engine.get_range, check_key(key), start, size))

    async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        pages = self._engine.list(check_folder(folder), check_after(after))
        while (page := await self._run(partial(next, pages, None))) is not None:
            for listed in page:
                yield listed

    async def delete(self, key: str) -> None:
        await self._run(partial(self._engine.delete, check_key(key)))

    async def close(self) -> None:
        # A thread of this pool would wait for itself.
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._engine.close)

    def describe(self) -> str:
        return self._engine.describe()

    async def _run(self, call: Callable[[], Result]) -> Result:
        threads: list[int] = []

        def noted() -> Result:
            threads.append(threading.get_ident())
            try:
                return call()
            finally:
                threads.clear()

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, noted)
        except asyncio.CancelledError:
            # Otherwise calls that nobody answers would take all threads.
            for thread in threads.copy():
                self._engine.cut_short(thread)
            raise
