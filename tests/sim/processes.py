"""Processes on one virtual loop: whatever one of them does carries its name, so one can stand still while others go on.

A process that is stopped (SIGSTOP, a paused virtual machine) runs nothing: no timer, no answer that has come, no task.
What it has sent before is on its way all the same. When it goes on, all that came due meanwhile runs at once, in its
order, and the clock on the wall has moved.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from semel.testing.virtual_loop import VirtualLoop

T = TypeVar("T")


class Process:
    """A process; it runs, or stands still."""

    def __init__(self, loop: "ProcessLoop") -> None:
        self.is_still = False
        self._loop = loop
        self._context = Context()
        self._context.run(_PROCESS.set, self)
        self._held: list[asyncio.Handle] = []

    def spawn(self, life: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Have this done in the process."""
        return self._loop.create_task(life, name=name, context=self._context.copy())

    def hold(self, handle: asyncio.Handle) -> None:
        """It is due, and the process stands still."""
        self._held.append(handle)

    def stand_still(self) -> None:
        self.is_still = True

    def go_on(self) -> None:
        self.is_still = False
        held, self._held = self._held, []
        for handle in held:
            self._loop.run_again(handle)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class ProcessLoop(VirtualLoop):
    """A virtual loop for several processes, and for what belongs to none of them: clients, networks, stores."""

    def __init__(self, *, turns_max: int) -> None:
        super().__init__(turns_max=turns_max)
        self._under_way: dict[asyncio.Task[Any], None] = {}

    def _run_handle(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(_PROCESS)
        if process is not None and process.is_still:
            process.hold(handle)
        else:
            handle._run()

    async def outside(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done that goes on without the process that waits for it, as a message on a wire does."""
        done: asyncio.Future[T] = self.create_future()

        def arrive(task: "asyncio.Task[T]") -> None:
            del self._under_way[task]
            error = task.exception()
            if done.done():
                return
            if error is None:
                done.set_result(task.result())
            else:
                done.set_exception(error)

        task = self.create_task(work, context=Context())
        self._under_way[task] = None
        task.add_done_callback(arrive, context=Context())
        return await done

    def run_again(self, handle: asyncio.Handle) -> None:
        """It was due while its process stood still."""
        self._ready.append(handle)
