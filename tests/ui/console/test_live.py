"""What is watched: each change is told once to all who watch, what was overtaken is not, and nobody asks needlessly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from semel.ui.console.live import Live


class Paced:
    """A world whose pauses end when the test says so, and whose answer is what the test says."""

    def __init__(self) -> None:
        self.answer = b"0"
        self.asked = 0
        self._next = asyncio.Event()
        self.paused = asyncio.Event()
        self.live = Live(self._pause)

    async def _pause(self, _: float) -> None:
        self.paused.set()
        await self._next.wait()
        self._next.clear()

    async def ask(self) -> bytes:
        self.asked += 1
        return self.answer

    async def turn(self, answer: bytes) -> None:
        """The answer is another one, and has been asked for."""
        self.answer = answer
        self.paused.clear()
        self._next.set()
        await self.paused.wait()

    def watch(self) -> AsyncGenerator[bytes, None]:
        return self.live.watch("topics", self.ask)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def test_a_watcher_is_told_the_answer_and_then_each_change() -> None:
    world = Paced()
    watching = world.watch()
    assert await anext(watching) == b"0"
    upcoming = asyncio.ensure_future(anext(watching))
    await world.paused.wait()
    await world.turn(b"0")
    assert not upcoming.done()
    await world.turn(b"1")
    assert await upcoming == b"1"
    await watching.aclose()


async def test_however_many_watch_it_is_asked_once_and_no_more_when_they_are_gone() -> None:
    world = Paced()
    watching = [world.watch() for _ in range(5)]
    assert [await anext(one) for one in watching] == [b"0"] * 5
    await world.paused.wait()
    assert world.asked == 1
    for one in watching:
        await one.aclose()
    again = world.watch()
    world.answer = b"1"
    assert await anext(again) == b"1"
    assert world.asked == 2
    await again.aclose()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=12))
def test_a_slow_watcher_gets_the_latest_answer_and_none_before(turns: list[tuple[bool, int]]) -> None:
    """Against a naive model: whoever takes an answer gets the one of the last turn, if it has not got that one."""

    async def story() -> None:
        world = Paced()
        watching = world.watch()
        taken = latest = await anext(watching)
        changes = 0
        await world.paused.wait()
        for takes, number in turns:
            answer = str(number).encode()
            changes += answer != latest
            latest = answer
            await world.turn(answer)
            if takes and changes:
                taken = await anext(watching)
                assert taken == latest
                changes = 0
        await watching.aclose()

    run(story())
