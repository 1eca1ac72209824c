"""Tests whether a store keeps its contract, before a broker writes its log there.

Some stores accept conditional writes and ignore the condition, or check it first and write later. They lose
acknowledged records as soon as two brokers write. So the probe lets several calls race for one key. It cannot prove
that a store never violates the contract, but it finds those that usually do. It writes below `probe/`, under a name
that nobody else uses, and must remove its objects.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Sequence
from typing import Final

from semel.log.store.contract import Changed, Exists, Missing, Store, StoreError, StoreRefused, Unsure

FOLDER: Final = "probe"
# Enough for a start: a store that checks first and writes later fails in nearly every race.
ROUNDS: Final = 3
# Some stores decide a race of two calls in milliseconds, but one of eight only in seconds.
RACERS: Final = 2
# A restarting store answers within this time; if the operator named a wrong store, the start has to fail.
START_SECONDS_MAX: Final = 30.0
_AGAIN_SECONDS: Final = 0.5
# How long a probe that has failed tries to remove what it has created.
_CLEAR_SECONDS_MAX: Final = 1.0


async def probe(store: Store, *, rounds: int = ROUNDS, racers: int = RACERS) -> None:
    """Raises StoreRefused with the store's mistake; Unsure if it cannot be reached."""
    await _Probe(store, f"{FOLDER}/{secrets.token_hex(8)}").run(rounds, racers)


async def probe_at_start(store: Store) -> None:
    """The same, within the time that a starting broker may wait for its store."""
    reason = ""
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            while True:
                try:
                    return await probe(store)
                except Unsure as unsure:
                    reason = f": {unsure}"
                    await asyncio.sleep(_AGAIN_SECONDS)
    except TimeoutError:
        raise Unsure(f"{store.describe()} has not answered for {START_SECONDS_MAX:g} s{reason}") from None


class _Probe:
    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._keys: list[str] = []

    async def run(self, rounds: int, racers: int) -> None:
        try:
            await self._alone()
            for _ in range(rounds):
                await self._race_to_create(racers)
                await self._race_to_replace(racers)
        except BaseException:
            # A store that does not answer holds nobody up who waits for this, or has ended it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLEAR_SECONDS_MAX):
                    await self._clear()
            raise
        await self._clear()

    async def _clear(self) -> None:
        for key in self._keys:
            with contextlib.suppress(StoreError):
                await self._store.delete(key)

    def _key(self) -> str:
        self._keys.append(f"{self._name}-{len(self._keys)}")
        return self._keys[-1]

    async def _alone(self) -> None:
        """The checks with one call after another."""
        key, body = self._key(), b"first body"
        if await _refusal(self._store.get(key)) is not Missing:
            raise self._lies("it has an object under a key that was never used")
        version = await self._store.create(key, body)
        await self._holds(key, body, "it does not show what was just created")
        if await self._store.get_range(key, 6, 100) != body[6:]:
            raise self._lies("it does not return the range that it is asked for")
        if await _refusal(self._store.create(key, b"second body")) is not Exists:
            raise self._lies("it creates an object that exists: it ignores If-None-Match")
        await self._holds(key, body, "a refused create changes the object")
        newer = await self._store.replace(key, b"third body", version)
        await self._holds(key, b"third body", "it does not show what was just replaced")
        if await _refusal(self._store.replace(key, b"fourth body", version)) is not Changed:
            raise self._lies("it replaces an object that has changed: it ignores If-Match")
        await self._holds(key, b"third body", "a refused replace changes the object")
        await self._store.replace(key, b"fifth body", newer)
        await self._store.delete(key)
        if await _refusal(self._store.get(key)) is not Missing:
            raise self._lies("it still shows what was just deleted")

    async def _race_to_create(self, racers: int) -> None:
        key, bodies = self._key(), _bodies(racers)
        await self._decided(key, bodies, [self._store.create(key, body) for body in bodies], "creates")

    async def _race_to_replace(self, racers: int) -> None:
        key, bodies = self._key(), _bodies(racers)
        version = await self._store.create(key, b"before")
        await self._decided(key, bodies, [self._store.replace(key, body, version) for body in bodies], "replaces")

    async def _decided(self, key: str, bodies: Sequence[bytes], calls: Sequence[Awaitable[str]], what: str) -> None:
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exists | Changed | Unsure):
                raise outcome
        winners = [body for body, outcome in zip(bodies, outcomes, strict=True) if isinstance(outcome, str)]
        if len(winners) > 1:
            raise self._lies(f"{len(winners)} of {len(bodies)} {what} of one object at once succeeded")
        if winners:
            await self._holds(key, winners[0], f"of several {what} at once it keeps another than the one it accepted")
        elif not any(isinstance(outcome, Unsure) for outcome in outcomes):
            raise self._lies(f"of {len(bodies)} {what} of one object at once none succeeded")

    async def _holds(self, key: str, body: bytes, otherwise: str) -> None:
        try:
            stored = await self._store.get(key)
        except Missing:
            raise self._lies(otherwise) from None
        if stored.body != body:
            raise self._lies(otherwise)

    def _lies(self, how: str) -> StoreRefused:
        return StoreRefused(f"{self._store.describe()} cannot hold a log: {how}")


async def _refusal(call: Awaitable[object]) -> type[StoreError] | None:
    """The error with which the call was refused; None if it succeeded."""
    try:
        await call
    except (Exists, Missing, Changed) as refusal:
        return type(refusal)
    return None


def _bodies(racers: int) -> list[bytes]:
    return [f"racer {number} {secrets.token_hex(4)}".encode() for number in range(racers)]
