"""Lets a broker that stops wait until its clients have their answers."""

import asyncio
from collections.abc import Callable


class Progress:
    """The progress of one broker towards its end."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds; it is checked at once, and at every `note`."""
        while not condition():
            self._next = asyncio.get_running_loop().create_future()
            await self._next

    def note(self) -> None:
        """Work was done, answers were sent, or a connection has ended."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
