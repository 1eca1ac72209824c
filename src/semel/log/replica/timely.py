"""A store whose calls end in time. A network that loses bytes without a word leaves a call without an answer, and the
engines wait for up to 20 seconds, because a large object over a slow line takes that long. A broker cannot: its lease
ends sooner. So a call that is not answered in a third of the lease is given up here, and its outcome is unknown. The
next call for the same object may take twice as long, for a store that is only slow; not for the lease, which has to be
renewed in that time anyway. How each call ends is noted, for the operator: a person may have to mount a directory, or
give a right back, and until then the broker waits. This must never repeat a call.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final, TypeVar

from semel.log.replica.health import CallKind, StoreHealth
from semel.log.replica.lease import LEASE_KEY, PUTS
from semel.log.store import Changed, Exists, Missing, Silent, Store, StoreBroken, StoreError, StoreRefused, Unsure
from semel.log.store.contract import Buffer, Found, Listed

# The least time for a call: that of a busy store on another continent.
CALL_SECONDS_MIN: Final = 1.0
# A body has more time: so many bytes a second are expected of a slow line.
BODY_BYTES_PER_SECOND: Final = 1024 * 1024
# Objects whose size is only known when they have come; the engine alone says how long they may take.
_LARGE: Final = ("checkpoints/", "segments/")
# Of so many objects this remembers that they were slow.
SLOW_MAX: Final = 1000

Result = TypeVar("Result")


class TimelyStore:
    """A `Store` over another one."""

    def __init__(self, store: Store, lease_seconds: float, health: StoreHealth) -> None:
        self._store = store
        self._health = health
        self._seconds = max(lease_seconds / PUTS, CALL_SECONDS_MIN)
        # The objects of which the last call was given up.
        self._slow: set[str] = set()
        # Whether a call that is refused until a person acts is to be repeated until then. A start is not that patient.
        self.is_patient = False

    async def create(self, key: str, body: Buffer) -> str:
        return await self._noted("create", self._in_time(key, self._store.create(key, body), memoryview(body).nbytes))

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        call = self._store.replace(key, body, version)
        return await self._noted("replace", self._in_time(key, call, memoryview(body).nbytes))

    async def get(self, key: str) -> Found:
        call = self._store.get(key)
        return await self._noted("get", call if key.startswith(_LARGE) else self._in_time(key, call))

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return await self._noted("get", self._in_time(key, self._store.get_range(key, start, size), size))

    async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        objects = aiter(self._store.list(folder, after))
        while (listed := await self._noted("other", self._in_time(folder, anext(objects, None)))) is not None:
            yield listed

    async def delete(self, key: str) -> None:
        await self._noted("other", self._in_time(key, self._store.delete(key)))

    async def close(self) -> None:
        await self._store.close()

    def describe(self) -> str:
        return self._store.describe()

    async def _noted(self, kind: CallKind, call: Awaitable[Result]) -> Result:
        began = self._health.now()
        try:
            result = await call
        except (Exists, Missing, Changed):
            self._health.note(kind, began, None)
            raise
        except StoreError as error:
            self._health.note(kind, began, error)
            may_succeed = isinstance(error, StoreRefused) and not isinstance(error, StoreBroken)
            if self.is_patient and may_succeed and kind != "other":
                raise Unsure(str(error)) from error
            raise
        self._health.note(kind, began, None)
        return result

    async def _in_time(self, key: str, call: Awaitable[Result], body_bytes: int = 0) -> Result:
        seconds = self._seconds * (2 if key in self._slow else 1) + body_bytes / BODY_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                result = await call
        except TimeoutError:
            if len(self._slow) >= SLOW_MAX:
                self._slow.clear()
            if key != LEASE_KEY:
                self._slow.add(key)
            raise Silent(f"{self._store.describe()}: {key}: no answer for {seconds:.1f} s") from None
        self._slow.discard(key)
        return result
