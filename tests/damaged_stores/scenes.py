"""Stores to damage: of a young broker and of an old one, after a clean stop and after a kill, for a start and for a
standby that has read a part already.

A scene also has older copies of its objects, and those of another cluster that did the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from damaged_stores.on_a_clock import on_a_clock
from leased_lives import Active, leave
from lives import WatchedStore, names
from semel.log.replica.note import FOLDER

Objects = Mapping[str, bytes]
AGES = ("young", "old")
ENDS = ("stopped", "killed")
NEXT = ("start", "standby")


class Scene(NamedTuple):
    """A store as a broker has left it."""

    name: str
    objects: Objects
    # The same store when the broker had done half of its work.
    half: Objects
    # The same work in another cluster.
    others: Objects
    # The records of each partition that were acknowledged.
    acknowledged: list[list[bytes]]
    # Whether a standby that has read `half` goes on, and not a broker that starts.
    is_standby: bool


def scenes() -> list[Scene]:
    """All of them."""
    return [scene(age, end, what) for age in AGES for end in ENDS for what in NEXT]


def scene(age: str, end: str, what: str) -> Scene:
    half, objects, acknowledged = on_a_clock(_lived("a cluster", age, end))
    _, others, _ = on_a_clock(_lived("another cluster", age, end))
    return Scene(f"{age}, {end}, {what}", objects, half, others, acknowledged, what == "standby")


async def _lived(cluster_id: str, age: str, end: str) -> tuple[Objects, Objects, list[list[bytes]]]:
    store = WatchedStore()
    first = Active(store)
    first.cluster_id = cluster_id
    active = await first.start()
    if age == "old":
        for number in range(3):
            await _write(active, 20 * number)
            await active.keep()
        # There was another broker before.
        await leave(active, is_clean=False)
        active = await Active(store).start()
        await active.keep()
    await _write(active, 100)
    # The lease is renewed.
    await asyncio.sleep(1)
    half = objects_of(store)
    await _write(active, 120)
    acknowledged = [active.values(index) for index in range(2)]
    await leave(active, is_clean=end == "stopped")
    return half, objects_of(store), acknowledged


async def _write(active: Active, first: int) -> None:
    for number in range(first, first + 8):
        await active.write(*names(number), index=number % 2)


def objects_of(store: WatchedStore) -> dict[str, bytes]:
    """All but the notes of standbys, which nothing depends on."""
    keys = [listed.key for listed in store.objects.list("") if not listed.key.startswith(FOLDER)]
    return {key: store.objects.get(key).body for key in keys}


def put(store: WatchedStore, objects: Objects) -> None:
    """Have the store hold these and no others."""
    for listed in store.objects.list(""):
        store.objects.delete(listed.key)
    for key, body in objects.items():
        store.objects.create(key, body)
