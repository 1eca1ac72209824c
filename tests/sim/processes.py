"""Processes on one virtual loop: whatever one of them does carries its name, so one can stand still while others go on.

A process that is stopped (SIGSTOP, a paused virtual machine) runs nothing: no timer, no answer that has come, no task.
What it has sent before is on its way all the same. When it goes on, all that came due meanwhile runs at once, in its
order, and the clock on the wall has moved.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
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
        self._held: list[_Step] = []

    def spawn(self, life: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Have this done in the process."""
        return self._loop.create_task(life, name=name, context=self._context.copy())

    def hold(self, step: "_Step") -> None:
        """It is due, and the process stands still."""
        self._held.append(step)

    def stand_still(self) -> None:
        self.is_still = True

    def go_on(self) -> None:
        self.is_still = False
        held, self._held = self._held, []
        for step in held:
            self._loop.run_again(step)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class _Step:
    """A callback of a process."""

    handle: asyncio.Handle

    def __init__(
        self, process: Process, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        self._process = process
        self._callback = callback
        self._args = args
        self.context = context

    def __call__(self) -> None:
        if self._process.is_still:
            self._process.hold(self)
        elif not self.handle.cancelled():
            self._callback(*self._args)


class ProcessLoop(VirtualLoop):
    """A virtual loop for several processes, and for what belongs to none of them: clients, networks, stores."""

    def __init__(self, *, turns_max: int) -> None:
        super().__init__(turns_max=turns_max)
        self._under_way: dict[asyncio.Task[Any], None] = {}

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        context = copy_context() if context is None else context
        step = _step_of(callback, args, context)
        if step is None:
            return super().call_soon(callback, *args, context=context)
        step.handle = super().call_soon(step, context=context)
        return step.handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        step = _step_of(callback, args, context)
        if step is None:
            return super().call_at(when, callback, *args, context=context)
        step.handle = timer = super().call_at(when, step, context=context)
        return timer

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

    def run_again(self, step: _Step) -> None:
        """It was due while its process stood still."""
        super().call_soon(step, context=step.context)


def _step_of(callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> _Step | None:
    process = context.get(_PROCESS)
    return None if process is None else _Step(process, callback, args, context)
