"""Answers that pages watch: the console asks for them repeatedly, and sends them when they have changed.

All pages that watch the same answer share one question. A slow page gets only the latest answer. The longer an answer
takes, the less often the console asks for it, so that it uses a limited share of a broker's time, however much the
broker holds.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

PAUSE_SECONDS_MIN: Final = 1.0
# After each answer there is a pause, this many times as long as the answer took, unless the time was not the cluster's.
PAUSE_FACTOR: Final = 10

Ask = Callable[[], Awaitable[bytes]]


class _Watched:
    """One answer, and the number of its watchers."""

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
        """The answer now, and again each time that it has changed. `key` identifies the answer; the pause after it is
        `pause_factor` times as long as it took.
        """
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
