"""`semel doctor URL`: checks whether a store keeps the promises that semel needs, how fast it is, and what is in it.
This must leave nothing behind, and never touch an object that it has not made.
"""

import asyncio
import contextlib
import secrets
import statistics
import time
from collections.abc import Awaitable
from typing import Final

from semel.log.stores import FOLDER, Missing, Store, StoreError, StoreRefused, Unsure, contents_of, open_store, probe
from semel.ui.cli.display import Finding, Mark, counted

# More rounds than at the start of a broker, because the person who watches has time.
ROUNDS: Final = 5
RACERS: Final = 4
SMALL_CREATES: Final = 20
_SMALL_BYTES: Final = 1024
# As in a broker under load: this many objects at the same time, of this size.
LARGE_CREATES: Final = 4
_LARGE_BYTES: Final = 4 * 1024 * 1024
# Amazon's buckets are faster than this; a client that waits for each message waits this long each time.
CREATE_MS_WANTED: Final = 100.0


def store_findings(url: str) -> list[Finding]:
    """One finding for each check, in order. The store's own timeout ends a check that hangs."""
    try:
        store = open_store(url)
    except StoreError as refusal:
        return [Finding(Mark.BAD, "store", str(refusal))]
    return asyncio.run(examined(store))


async def examined(store: Store) -> list[Finding]:
    """The findings on a store; closes the store."""
    findings = []
    try:
        for examine in (_opened, _contract, _speed, _contents):
            findings += await examine(store)
    except Unsure as unsure:
        remedy = "see whether it is running and can be reached, then try again"
        findings.append(Finding(Mark.BAD, "store", str(unsure), remedy))
    except StoreError as refusal:
        findings.append(Finding(Mark.BAD, "store", str(refusal)))
    finally:
        await store.close()
    return findings


async def _opened(store: Store) -> list[Finding]:
    """Read an unused key, which shows whether the store exists and accepts the login."""
    with contextlib.suppress(Missing):
        await store.get(f"{FOLDER}/{secrets.token_hex(8)}")
    return [Finding(Mark.GOOD, "store", store.describe())]


async def _contract(store: Store) -> list[Finding]:
    try:
        await probe(store, rounds=ROUNDS, racers=RACERS)
    except StoreRefused as refusal:
        return [Finding(Mark.BAD, "contract", str(refusal))]
    return [
        Finding(Mark.GOOD, "contract", "conditional creates and replaces, ranges, deletes"),
        Finding(Mark.GOOD, "races", f"{2 * ROUNDS} races of {RACERS}, one winner each"),
    ]


async def _speed(store: Store) -> list[Finding]:
    name = f"{FOLDER}/{secrets.token_hex(8)}"
    small = [f"{name}-small-{number}" for number in range(SMALL_CREATES)]
    large = [f"{name}-large-{number}" for number in range(LARGE_CREATES)]
    try:
        create_ms = statistics.median([await _timed(store.create(key, bytes(_SMALL_BYTES))) for key in small]) * 1000
        get_ms = statistics.median([await _timed(store.get(key)) for key in small]) * 1000
        body = secrets.token_bytes(_LARGE_BYTES)
        began = time.perf_counter()
        await asyncio.gather(*(store.create(key, body) for key in large))
        rate = LARGE_CREATES * _LARGE_BYTES / 1e6 / (time.perf_counter() - began)
    finally:
        for key in [*small, *large]:
            await store.delete(key)
    state = f"{create_ms:.1f} ms, the median of {SMALL_CREATES}"
    if create_ms > CREATE_MS_WANTED:
        remedy = "every acks=all waits this long; a store that is nearer is faster"
        create = Finding(Mark.WANTING, "create", state, remedy)
    else:
        create = Finding(Mark.GOOD, "create", state)
    return [
        create,
        Finding(Mark.GOOD, "get", f"{get_ms:.1f} ms, the median of {SMALL_CREATES}"),
        Finding(Mark.GOOD, "throughput", f"{rate:.0f} MB/s, {LARGE_CREATES} objects of 4 MiB at once"),
    ]


async def _contents(store: Store) -> list[Finding]:
    contents = await contents_of(store)
    left = contents.pop(FOLDER, None)
    findings = [
        Finding(Mark.GOOD, name, f"{counted(part.objects, 'object')}, {part.size_bytes / 1e6:.1f} MB")
        for name, part in contents.items()
    ]
    if not contents:
        findings.append(Finding(Mark.GOOD, "contents", "empty"))
    if left is not None:
        state = f"{left.objects} objects of a check that was interrupted"
        findings.append(Finding(Mark.WANTING, FOLDER, state, f"delete what is below {FOLDER}/"))
    return findings


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return time.perf_counter() - began
