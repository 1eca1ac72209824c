"""Work that is handed over to a thread: it leaves nothing in memory, and no stop waits for the rest."""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Iterator
from weakref import ref

import pytest

from semel.log.broker.turns import Turns
from semel.wire.steps import Steps, elsewhere, finish

Job = tuple[Callable[[], None], Callable[[BaseException | None], None]]


class HeldThread:
    """A thread that does a job when it is told to."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((job, done))

    def work(self) -> None:
        job, done = self.jobs.popleft()
        job()
        done(None)


class Large:
    """What takes much memory."""


def opening(opened: list["ref[Large]"]) -> Steps[None]:
    def make() -> Large:
        large = Large()
        opened.append(ref(large))
        return large

    large = yield from elsewhere(make)
    for _ in range(20):
        yield 1
    del large


async def test_nothing_more_is_made_elsewhere_once_all_stops() -> None:
    """A broker that stops waits for its threads: for each thing that is still to be opened it would be 0.2 s."""
    opened: list[ref[Large]] = []
    ended: list[Exception | None] = []
    thread = HeldThread()
    turns = Turns(lambda: None, thread.run, 3)
    for _ in range(4):
        turns.begin(opening(opened), ended.append)
    thread.work()
    turns.stop()
    while thread.jobs:
        thread.work()
    await asyncio.sleep(0)
    assert len(opened) == 1
    assert not ended


@pytest.fixture
def without_a_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_a_collector")
def test_what_breaks_off_elsewhere_leaves_nothing_in_memory() -> None:
    """Where the collector of garbage is off, or looks rarely, what stands in a circle stays: 64 MiB a time."""
    larges: list[ref[Large]] = []

    def break_off() -> None:
        large = Large()
        larges.append(ref(large))
        raise ValueError("it breaks off")

    with pytest.raises(ValueError, match="it breaks off") as broken_off:
        finish(elsewhere(break_off))
    del broken_off
    assert larges[0]() is None
