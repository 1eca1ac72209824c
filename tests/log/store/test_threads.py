"""Holds that an engine which blocks keeps no call waiting that a broker needs in time."""

import asyncio
import threading
from collections.abc import Iterator

from semel.log.core.slots import DEPTH
from semel.log.replica.cache import AT_ONCE
from semel.log.replica.uploads import CREATED_AT_ONCE
from semel.log.store.contract import Buffer, Found, Listed
from semel.log.store.threads import ThreadedStore


class Busy:
    """An engine whose large calls hang until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.hanging = threading.Semaphore(0)

    def create(self, key: str, body: Buffer) -> str:
        self.hanging.release()
        self.released.wait()
        return "version"

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if size > 1:
            self.create(key, b"")
        return b""

    def replace(self, key: str, body: Buffer, version: str) -> str:
        return "version"

    def get(self, key: str) -> Found:
        return Found(b"", "version")

    def list(self, folder: str, after: str = "") -> Iterator[list[Listed]]:
        yield []

    def delete(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass

    def describe(self) -> str:
        return "busy"


async def test_the_lease_and_a_proof_do_not_queue_behind_slots_a_checkpoint_and_the_cache() -> None:
    """A broker on a slow store would lose its lease while it uploads."""
    engine = Busy()
    store = ThreadedStore(engine)
    large = [store.create(f"large/{number}", b"") for number in range(DEPTH + CREATED_AT_ONCE)]
    ranges = [store.get_range(f"segments/{number}", 0, 100) for number in range(AT_ONCE)]
    under_way = asyncio.gather(*large, *ranges)
    try:
        for _ in (*large, *ranges):
            assert await asyncio.to_thread(engine.hanging.acquire, timeout=30)
        async with asyncio.timeout(30):
            await store.replace("lease", b"", "version")
            await asyncio.gather(store.get("floor"), store.get_range("journal/1", 0, 1), store.get("standbys/a"))
    finally:
        engine.released.set()
        await under_way
        await store.close()
