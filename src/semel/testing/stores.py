"""Stores of objects that live in memory, for tests of whatever stands on a store.

    store = MemoryStore()
    await store.create("journal/0", b"the first object")

It keeps the contract of `semel.store` to the letter, on any event loop, the one of virtual time included.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

from semel.store.contract import (
    Buffer,
    Changed,
    Exists,
    Found,
    Listed,
    Missing,
    check_body,
    check_folder,
    check_key,
    check_range,
)


class MemoryStore:
    """A `Store` that lives and dies with the process. Every call lets the event loop turn once before it happens."""

    def __init__(self) -> None:
        self._objects: dict[str, Found] = {}
        self._versions = count(1)

    async def create(self, key: str, body: Buffer) -> str:
        """As in the contract."""
        check_key(key)
        check_body(body)
        await asyncio.sleep(0)
        if key in self._objects:
            raise Exists(f"{key} exists in {self.describe()}")
        return self._put(key, body)

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        """As in the contract."""
        check_key(key)
        check_body(body)
        await asyncio.sleep(0)
        if self._object(key).version != version:
            raise Changed(f"{key} in {self.describe()} was replaced by somebody else")
        return self._put(key, body)

    async def get(self, key: str) -> Found:
        """As in the contract."""
        check_key(key)
        await asyncio.sleep(0)
        return self._object(key)

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        """As in the contract."""
        check_key(key)
        wanted = check_range(start, size)
        await asyncio.sleep(0)
        return self._object(key).body[wanted]

    async def list(self, folder: str) -> AsyncIterator[Listed]:
        """As in the contract."""
        check_folder(folder)
        await asyncio.sleep(0)
        beginning = f"{folder}/" if folder else ""
        for key, (body, _) in list(self._objects.items()):
            if key.startswith(beginning):
                yield Listed(key, len(body))

    async def delete(self, key: str) -> None:
        """As in the contract."""
        check_key(key)
        await asyncio.sleep(0)
        self._objects.pop(key, None)

    async def close(self) -> None:
        """What it holds stays: another broker may open it again."""

    def describe(self) -> str:
        """It has no address."""
        return "memory"

    def _object(self, key: str) -> Found:
        if key not in self._objects:
            raise Missing(f"{key} is not in {self.describe()}")
        return self._objects[key]

    def _put(self, key: str, body: Buffer) -> str:
        self._objects[key] = Found(bytes(body), str(next(self._versions)))
        return self._objects[key].version
