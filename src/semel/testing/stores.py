"""Stores in memory, to test code that uses a store.

    store = MemoryStore()
    await store.create("journal/0", b"the first object")

It fulfils the contract of `semel.log.store` exactly, on any event loop, including the one of virtual time, and on
several loops in several threads. `FaultyStore` is for one loop, and on demand as bad as the contract allows:

    store = FaultyStore(seed=7)
    store.arm(StoreFault("late", call="create", key="journal/*", chance=0.1))
    run(store)                                  # code that gets Unsure has to send again, or look
    assert store.fired["late"]                  # a fault that never fired proves nothing

Each of its calls is like a message in a network: it takes effect at its time, even if the caller was cancelled and no
longer waits for the answer. This must never break the contract: no object is incomplete, no refusal is wrong, and
nobody reads an object that an earlier call has replaced.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from random import Random
from typing import Final, Literal, TypeVar

from semel.log.stores import (
    Buffer,
    Changed,
    Exists,
    Found,
    Listed,
    Missing,
    StoreError,
    Unsure,
    check_after,
    check_body,
    check_folder,
    check_key,
    check_range,
)

CallName = Literal["create", "replace", "get", "get_range", "list", "delete"]
StoreFaultKind = Literal[
    "late", "lost request", "lost answer", "conflict", "throttled", "slow", "landed again", "stale list"
]
Result = TypeVar("Result")

_WRITES: Final = frozenset({"create", "replace", "delete"})
_SINGLE: Final = _WRITES | {"get", "get_range"}
# The calls that each kind of fault can strike.
STRIKES: Final[dict[StoreFaultKind, frozenset[str]]] = {
    "late": _WRITES,
    "lost request": _SINGLE,
    "lost answer": _SINGLE,
    "conflict": frozenset({"create", "replace"}),
    "throttled": _SINGLE | {"list"},
    "slow": _SINGLE | {"list"},
    "landed again": _WRITES,
    "stale list": frozenset({"list"}),
}
# A stale listing lacks at most this many of the last changes.
STALE_CHANGES_MAX: Final = 8


class Objects:
    """The objects of a store, and the effect of each call on them."""

    def __init__(self) -> None:
        # Each call is atomic for all threads.
        self._lock = threading.RLock()
        self._objects: dict[str, Found] = {}
        self._versions = count(1)
        # The last changes, in order: the key, and the object before the change.
        self._changes: list[tuple[str, Found | None]] = []

    def create(self, key: str, body: bytes) -> str:
        with self._lock:
            if key in self._objects:
                raise Exists(f"{key} exists in memory")
            return self._put(key, body)

    def replace(self, key: str, body: bytes, version: str) -> str:
        with self._lock:
            if self.get(key).version != version:
                raise Changed(f"{key} in memory was replaced by somebody else")
            return self._put(key, body)

    def get(self, key: str) -> Found:
        stored = self._objects.get(key)
        if stored is None:
            raise Missing(f"{key} is not in memory")
        return stored

    def list(self, folder: str, changes_ago: int = 0) -> list[Listed]:
        """The objects as they were `changes_ago` changes ago."""
        with self._lock:
            undone = self._changes[-changes_ago:] if changes_ago else []
            visible: dict[str, Found | None] = {**self._objects, **dict(reversed(undone))}
        beginning = f"{folder}/" if folder else ""
        return [
            Listed(key, len(stored.body)) for key, stored in visible.items() if stored and key.startswith(beginning)
        ]

    def delete(self, key: str) -> None:
        with self._lock:
            before = self._objects.pop(key, None)
            if before is not None:
                self._note(key, before)

    def _put(self, key: str, body: bytes) -> str:
        self._note(key, self._objects.get(key))
        self._objects[key] = Found(body, str(next(self._versions)))
        return self._objects[key].version

    def _note(self, key: str, before: Found | None) -> None:
        self._changes.append((key, before))
        del self._changes[:-STALE_CHANGES_MAX]


class MemoryStore:
    """A `Store` in the memory of the process. Every call lets the event loop turn once before it takes effect."""

    def __init__(self) -> None:
        self.objects: Final = Objects()

    async def create(self, key: str, body: Buffer) -> str:
        """As in the contract."""
        check_key(key)
        copied = bytes(check_body(body))
        return await self._send("create", key, lambda: self.objects.create(key, copied))

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        """As in the contract."""
        check_key(key)
        copied = bytes(check_body(body))
        return await self._send("replace", key, lambda: self.objects.replace(key, copied, version))

    async def get(self, key: str) -> Found:
        """As in the contract."""
        check_key(key)
        return await self._send("get", key, lambda: self.objects.get(key))

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        """As in the contract."""
        check_key(key)
        wanted = check_range(start, size)
        return await self._send("get_range", key, lambda: self.objects.get(key).body[wanted])

    async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        """As in the contract."""
        check_folder(folder)
        check_after(after)
        for listed in await self._send("list", folder, lambda: self.objects.list(folder)):
            if listed.key > after:
                yield listed

    async def delete(self, key: str) -> None:
        """As in the contract."""
        check_key(key)
        await self._send("delete", key, lambda: self.objects.delete(key))

    async def close(self) -> None:
        """Keep the objects, because another broker may go on with them."""

    def describe(self) -> str:
        """It has no address."""
        return "memory"

    async def _send(self, call: CallName, key: str, land: Callable[[], Result]) -> Result:
        await asyncio.sleep(0)
        return land()


@dataclass(frozen=True, slots=True)
class StoreFault:
    """A fault for calls of this name on matching keys, with this chance for each, and at most `times` times.

    - `late`: the caller gets `Unsure`, and the call takes effect much later;
    - `lost request`: the caller gets `Unsure`, and nothing ever happens;
    - `lost answer`: the call takes effect, and the caller gets `Unsure`;
    - `conflict`, `throttled`: nothing happens, and the caller gets `Unsure`;
    - `slow`: the call takes as long as one in ten thousand;
    - `landed again`: the call succeeds, and takes effect a second time, later;
    - `stale list`: the listing lacks the last changes.
    """

    kind: StoreFaultKind
    call: CallName | None = None
    key: str | None = None
    chance: float = 1.0
    times: int | None = None

    def may_strike(self, call: CallName, key: str) -> bool:
        """Whether the fault is for this call."""
        return (
            call in STRIKES[self.kind]
            and self.call in (None, call)
            and (self.key is None or fnmatchcase(key, self.key))
        )


class FaultyStore(MemoryStore):
    """A `MemoryStore` behind a bad network. The same calls at the same times have the same faults."""

    def __init__(self, seed: int = 0, *, latency_seconds: float = 0.002, late_seconds: float = 0.5) -> None:
        """A message takes up to `latency_seconds` each way; a slow or late one up to `late_seconds`."""
        super().__init__()
        # How often each kind of fault has struck.
        self.fired: Counter[StoreFaultKind] = Counter()
        self._random = Random(seed)
        self._latency_seconds = latency_seconds
        self._late_seconds = late_seconds
        self._armed: list[tuple[StoreFault, int]] = []

    def arm(self, fault: StoreFault) -> None:
        """Add a fault. If several strike a call, the one that was armed first has its effect."""
        self._armed.append((fault, 0))

    def calm(self) -> None:
        """Remove all faults. Late calls still take effect."""
        self._armed.clear()

    async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        """As in the contract."""
        check_folder(folder)
        check_after(after)
        kind = self._strike("list", folder)
        changes_ago = self._random.randint(1, STALE_CHANGES_MAX) if kind == "stale list" else 0
        for listed in await self._travel(kind, lambda: self.objects.list(folder, changes_ago), folder):
            if listed.key > after:
                yield listed

    async def _send(self, call: CallName, key: str, land: Callable[[], Result]) -> Result:
        return await self._travel(self._strike(call, key), land, f"{call} of {key}")

    async def _travel(self, kind: StoreFaultKind | None, land: Callable[[], Result], what: str) -> Result:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()

        def leave_unsure() -> Result:
            raise Unsure(f"{what}: {kind}")

        if kind in ("late", "lost request", "conflict", "throttled"):
            loop.call_later(self._soon(), _arrive, leave_unsure, outcome)
        else:
            loop.call_later(self._later() if kind == "slow" else self._soon(), _arrive, land, outcome)
        if kind in ("late", "landed again"):
            loop.call_later(self._later(), _arrive, land, None)
        # Every answer takes its time, even an error.
        with suppress(StoreError):
            await outcome
        await asyncio.sleep(self._soon())
        if kind == "lost answer":
            leave_unsure()
        return outcome.result()

    def _strike(self, call: CallName, key: str) -> StoreFaultKind | None:
        for place, (fault, times) in enumerate(self._armed):
            if (
                fault.may_strike(call, key)
                and (fault.times is None or times < fault.times)
                and self._random.random() < fault.chance
            ):
                self._armed[place] = (fault, times + 1)
                self.fired[fault.kind] += 1
                return fault.kind
        return None

    def _soon(self) -> float:
        return self._random.uniform(0, self._latency_seconds)

    def _later(self) -> float:
        return self._random.uniform(self._latency_seconds, self._late_seconds)


def _arrive(land: Callable[[], Result], outcome: "asyncio.Future[Result] | None") -> None:
    """Let a call take effect; `outcome` is the future of its sender, who may no longer wait."""
    try:
        result = land()
    except StoreError as refusal:
        if outcome is not None and not outcome.done():
            outcome.set_exception(refusal)
    else:
        if outcome is not None and not outcome.done():
            outcome.set_result(result)
