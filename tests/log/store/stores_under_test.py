"""The engines that the contract is held against, each opened twice on one place: as two brokers would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pooler import pooler
from semel.log.store import Store, open_store
from semel.testing.stores import FaultyStore, MemoryStore

Story = Callable[[Store, Store], Awaitable[None]]


class Place:
    """Where a store lies; every story begins with an empty one."""

    def __init__(self, open_one: Callable[[str], Store], races: int = 8) -> None:
        """`open_one` takes the name of a fresh part of the place. `races` says how many races a test has it decide."""
        self.races = races
        self._open_one = open_one
        self._stories = 0

    def run(self, story: Story) -> None:
        """Tell the story with two stores on one fresh part of the place."""
        self._stories += 1
        part = f"story-{self._stories}"

        async def told() -> None:
            first, second = self._open_one(part), self._open_one(part)
            try:
                await story(first, second)
            finally:
                await first.close()
                await second.close()

        asyncio.run(told())


@contextmanager
def in_memory(_: Any, __: Path) -> Iterator[Place]:
    stores: dict[str, Store] = {}
    yield Place(lambda part: stores.setdefault(part, MemoryStore()))


@contextmanager
def behind_a_network(_: Any, __: Path) -> Iterator[Place]:
    """The faulty double while nothing goes wrong, and as fast as it can."""
    stores: dict[str, Store] = {}
    yield Place(lambda part: stores.setdefault(part, FaultyStore(latency_seconds=0)))


@contextmanager
def in_a_directory(_: Any, directory: Path) -> Iterator[Place]:
    yield Place(lambda part: open_store(f"file://{directory}/{part}"))


@contextmanager
def in_seaweedfs(request: Any, _: Path) -> Iterator[Place]:
    server = request.getfixturevalue("seaweedfs")
    # A prefix of its own for each module: they share the server.
    prefix = request.node.name.removesuffix(".py").replace("/", "-")
    # It takes seconds to decide one.
    yield Place(lambda part: open_store(server.url(f"contract/{prefix}/{part}")), races=2)


@contextmanager
def in_postgres(request: Any, _: Path) -> Iterator[Place]:
    url = request.getfixturevalue("servers")[0].new_database()
    yield Place(lambda part: open_store(f"{url}?prefix={part}"))


@contextmanager
def in_postgres_alone(request: Any, _: Path) -> Iterator[Place]:
    url = request.getfixturevalue("postgres").new_database()
    yield Place(lambda part: open_store(f"{url}?allow_async=1&prefix={part}"))


@contextmanager
def through_a_pooler(request: Any, directory: Path) -> Iterator[Place]:
    url = request.getfixturevalue("servers")[0].new_database()
    with pooler(url, directory, "ignore_startup_parameters = options") as pooled:
        yield Place(lambda part: open_store(f"{pooled}?prefix={part}"))


ENGINES: Final = {
    "memory": in_memory,
    "network": behind_a_network,
    "directory": in_a_directory,
    "seaweedfs": in_seaweedfs,
    "postgres": in_postgres,
    "postgres alone": in_postgres_alone,
    "postgres pooled": through_a_pooler,
}
