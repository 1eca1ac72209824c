"""What is asked in threads: whoever waits gets the answer, and what nobody waits for any more is not done."""

from __future__ import annotations

import asyncio
import threading

import pytest

from semel.ui.console.askers import THREADS, Askers


def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    """So a change that was given up while every thread was held up does not happen behind the person's back."""
    go_on = threading.Event()
    done: list[str] = []

    async def story() -> None:
        askers = Askers(lambda: done)
        holding = [asyncio.ensure_future(askers.ask(lambda _: go_on.wait(60))) for _ in range(THREADS)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await askers.ask(lambda done: done.append("given up"))
        go_on.set()
        assert await asyncio.gather(*holding) == [True] * THREADS
        # Each thread has taken one more question since, so the one before these was taken as well.
        meet = threading.Barrier(THREADS)
        await asyncio.gather(*(askers.ask(lambda _: meet.wait(60)) for _ in range(THREADS)))
        await askers.ask(lambda done: done.append("wanted"))

    asyncio.run(asyncio.wait_for(story(), 120))
    assert done == ["wanted"]
