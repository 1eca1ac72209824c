"""Clients' batches for compacted topics are looked through a few at a time, however many send them: nobody's memory
grows with the number of connections, and everybody's turn comes.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from semel.log.broker.turns import Turns
from semel.log.compaction.records import KeyChecks, KeylessRecords
from semel.wire.batch import read_header
from semel.wire.records import Record, encode_batch
from semel.wire.refusals import Refused
from semel.wire.steps import Door, Steps, Waiting, finish

SMALL, LARGE = 1_000, 2_000_000


def batch_of(size: int, *, codec: str = "zstd", key: bytes | None = b"k") -> bytes:
    return bytes(encode_batch([Record(b"0" * (size // 10), key=key)] * 10, codec=codec))


class Senders:
    """Many who send a batch each, and a thread that opens them when it is told to."""

    def __init__(self, checks: KeyChecks) -> None:
        self.turns = Turns(lambda: None, self._hold, pieces_per_turn=1)
        self.jobs: list[Callable[[], None]] = []
        self.heard: list[tuple[int, Exception | None]] = []
        self._checks = checks
        self._sent = 0

    def _hold(self, job: Callable[[], None], done: Callable[[Any], None]) -> None:
        def open_one() -> None:
            job()
            done(None)

        self.jobs.append(open_one)

    def send(self, batch: bytes) -> None:
        number, self._sent = self._sent, self._sent + 1
        steps = self._checks.check(batch, read_header(batch))
        self.turns.begin(steps, lambda error: self.heard.append((number, error)))

    async def rest(self) -> None:
        """Until nothing more happens by itself."""
        for _ in range(200):
            await asyncio.sleep(0)


async def test_one_large_batch_is_open_at_a_time_and_everybodys_turn_comes_in_the_order_in_which_they_came() -> None:
    senders = Senders(KeyChecks(64 * LARGE))
    for key in (b"k", None, b"k", b"k"):
        senders.send(batch_of(LARGE, key=key))
    for number in range(4):
        await senders.rest()
        assert len(senders.jobs) == 1
        assert [one for one, _ in senders.heard] == list(range(number))
        senders.jobs.pop()()
        # Opened, and not looked through yet: nobody else begins before that.
        assert not senders.jobs
    await senders.rest()
    assert [type(error) for _, error in senders.heard] == [type(None), KeylessRecords, type(None), type(None)]
    assert senders.turns.is_idle


async def test_small_batches_do_not_wait_for_large_ones_and_only_so_many_are_open_at_once() -> None:
    senders = Senders(KeyChecks(64 * LARGE, small_at_once=2))
    senders.send(batch_of(LARGE))
    for _ in range(5):
        senders.send(batch_of(SMALL))
    # Nothing has to be opened here, so it goes on together with the two that are let in.
    senders.send(batch_of(LARGE, codec="none"))
    await senders.rest()
    assert [one for one, _ in senders.heard] == [1, 2, 6, 3, 4, 5]
    assert len(senders.jobs) == 1


async def test_a_batch_that_cannot_be_opened_gives_its_place_to_the_next() -> None:
    senders = Senders(KeyChecks(LARGE * 3 // 4))
    for size in (LARGE, LARGE, SMALL):
        senders.send(batch_of(size))
    for _ in range(2):
        senders.jobs.pop()()
        await senders.rest()
    assert [type(error) for _, error in sorted(senders.heard)] == [Refused, Refused, type(None)]


# At a door


def is_let_in(steps: Steps[None]) -> bool:
    return not isinstance(next(steps), Waiting)


def goes_on(steps: Steps[None]) -> list[bool]:
    """What hears that this waits no longer."""
    told: list[bool] = []
    waiting = next(steps)
    assert isinstance(waiting, Waiting)
    waiting.tell(lambda: told.append(True))
    return told


def inside() -> Steps[None]:
    yield 1


@pytest.mark.parametrize("was_let_in", [False, True])
def test_who_is_given_up_at_a_door_leaves_no_place_taken(was_let_in: bool) -> None:
    door = Door(1)
    first, given_up, last = (door.inside(inside()) for _ in range(3))
    assert is_let_in(first)
    goes_on(given_up)
    told = goes_on(last)
    if was_let_in:
        first.close()
    given_up.close()
    first.close()
    assert told
    assert is_let_in(last)
    last.close()
    assert is_let_in(door.inside(inside()))


def test_who_does_everything_at_once_does_not_wait_for_ever() -> None:
    door = Door(1)
    first = door.inside(inside())
    assert is_let_in(first)
    with pytest.raises(RuntimeError):
        finish(door.inside(inside()))
