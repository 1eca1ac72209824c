"""Runs a story on virtual time, and returns its result."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from semel.testing.virtual_loop import VirtualLoop

Result = TypeVar("Result")


def on_a_clock(story: Coroutine[Any, Any, Result]) -> Result:
    """What the story returns."""
    results: list[Result] = []

    async def told() -> None:
        results.append(await story)

    VirtualLoop().run(told())
    return results[0]
