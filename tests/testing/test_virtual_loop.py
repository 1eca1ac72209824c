"""What the loop whose time is counted promises: hours pass at once, in order, and a standstill is said to be one."""

import asyncio

import pytest

from semel.testing.virtual_loop import Deadlock, NoEnd, VirtualLoop


def test_hours_pass_at_once_and_in_their_order() -> None:
    told: list[tuple[str, float]] = []

    async def wake(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        told.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(wake("late", 7200.0), wake("early", 60.0))

    VirtualLoop().run(main())
    assert told == [("early", 60.0), ("late", 7200.0)]


def test_a_program_in_which_everybody_waits_for_ever_is_told_so() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        VirtualLoop().run(main())


def test_a_program_that_goes_round_in_circles_is_told_so() -> None:
    async def main() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    with pytest.raises(NoEnd):
        VirtualLoop(turns_max=100).run(main())
