"""Answers that somebody watches: asked for again from time to time, and told where they have changed.

However many pages watch the same, it is asked once. A page that is slow gets the latest answer and none of those
before. And an answer that takes long is asked for less often, so that the console takes up a bounded share of a
broker's time, whatever it holds.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

PAUSE_SECONDS_MIN: Final = 1.0
# An answer is followed by a pause at least as many times as long as it took, unless its time is not the cluster's.
PAUSE_FACTOR: Final = 10

Ask = Callable[[], Awaitable[bytes]]


class _Watched:
    """One answer, and how many watch it."""

    def __init__(self) -> None:
        self.listeners = 0
        self.number = 0
        self.latest = b""
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def publish(self, answer: bytes) -> None:
        if self.number and answer == self.latest:
            return
        self.latest = answer
        self.number += 1
        self.changed.set()
        self.changed = asyncio.Event()


class Live:
    def __init__(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._pause = pause
        self._watched: dict[str, _Watched] = {}

    async def watch(self, key: str, ask: Ask, pause_factor: float = PAUSE_FACTOR) -> AsyncGenerator[bytes, None]:
        """The answer as it is, and again each time that it is another one. `key` says which answer it is; the pause
        after one is `pause_factor` times as long as it took."""
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = _Watched()
            watched.task = asyncio.create_task(self._keep_asking(watched, ask, pause_factor))
        watched.listeners += 1
        last_number = 0
        try:
            while True:
                if watched.number == last_number:
                    await watched.changed.wait()
                last_number = watched.number
                yield watched.latest
        finally:
            watched.listeners -= 1
            if not watched.listeners:
                del self._watched[key]
                assert watched.task is not None
                watched.task.cancel()

    async def _keep_asking(self, watched: _Watched, ask: Ask, pause_factor: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            watched.publish(await ask())
            await self._pause(max(PAUSE_SECONDS_MIN, pause_factor * (loop.time() - began)))
