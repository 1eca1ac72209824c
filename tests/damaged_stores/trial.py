"""Damages one object of a store, has a broker start or a standby take over, and says what happened."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from damaged_stores.on_a_clock import on_a_clock
from damaged_stores.scenes import Objects, Scene, objects_of, put
from leased_lives import Active
from lives import WatchedStore
from semel.log.core.slots import BrokenHistory
from semel.log.replica.cache import Unreadable
from semel.log.replica.holes import Overtaken
from semel.log.replica.lease import LEASE_KEY
from semel.log.storage.journal import Damaged

DAMAGES: Final = ("missing", "empty", "cut", "flipped bit", "older copy", "another's")
WHOLE, REFUSED = "whole", "refused"
# How a start may end that does not serve.
_REFUSALS: Final = (BrokenHistory, Damaged, Unreadable, Overtaken)


def cells(scene: Scene) -> Iterator[tuple[str, str]]:
    """Each object of a scene with each damage."""
    for key in scene.objects:
        for damage in DAMAGES:
            yield key, damage


def kind_of(key: str, content: bytes) -> str:
    """What kind of object it is."""
    folder = key.partition("/")[0]
    if folder == "journal":
        return "fence" if len(content) < 130 else "slot"
    return folder


def damaged(scene: Scene, key: str, damage: str, chance: Random) -> dict[str, bytes] | None:
    """The objects with this damage; None if it makes no difference to this one."""
    objects, content = dict(scene.objects), scene.objects[key]
    match damage:
        case "missing":
            del objects[key]
        case "empty":
            objects[key] = b""
        case "cut":
            objects[key] = content[: chance.randrange(len(content))]
        case "flipped bit":
            at = chance.randrange(len(content))
            objects[key] = content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        case "older copy":
            # An object that is never replaced has none: then it is that of another one of its folder.
            older = scene.half.get(key)
            if older == content:
                older = _sibling(scene.objects, key, chance)
            objects[key] = content if older is None else older
        case "another's":
            other = scene.others.get(key) or _sibling(scene.others, key, chance)
            objects[key] = content if other is None else other
    return objects if objects != scene.objects else None


def _sibling(objects: Objects, key: str, chance: Random) -> bytes | None:
    folder = key.partition("/")[0] + "/"
    siblings = [body for other, body in objects.items() if other.startswith(folder) and other != key]
    return chance.choice(siblings) if siblings else None


def outcome(scene: Scene, key: str, damage: str, chance: Random) -> str | None:
    """Whole or refused; anything else says what is wrong. None if the damage makes no difference."""
    objects = damaged(scene, key, damage, chance)
    return None if objects is None else on_a_clock(_tried(scene, objects))


async def _tried(scene: Scene, objects: Objects) -> str:
    store = WatchedStore()
    try:
        found = await _served(scene, store, objects)
    except _REFUSALS as error:
        said = str(error)
        if "\n" in said or not any(key in said for key in [*scene.objects, "slot"]):
            return f"said {said!r}"
        after = objects_of(store)
        if changed := [key for key in {*objects, *after} if objects.get(key) != after.get(key) and key != LEASE_KEY]:
            return f"refused ({said}), and changed {changed}"
        try:
            found = await _served(scene, store, scene.objects)
        except _REFUSALS as left:
            return f"refused ({said}), and after the damage was undone: {left}"
        return REFUSED if found == scene.acknowledged else f"refused ({said}), and LOST with the damage undone"
    if found != scene.acknowledged:
        return f"LOST: {[len(values) for values in found]} of {[len(values) for values in scene.acknowledged]}"
    if gone := [key for key in objects if key not in objects_of(store)]:
        return f"DELETED: {gone}"
    return WHOLE


async def _served(scene: Scene, store: WatchedStore, objects: Objects) -> list[list[bytes]]:
    """What a broker on these objects serves, when it is active."""
    put(store, scene.half if scene.is_standby else objects)
    broker = Active(store)
    # A store that is taken for a new one gets the id that its broker has made up.
    broker.cluster_id = "a new cluster"
    await broker.stand_by()
    if scene.is_standby:
        await broker.catch_up()
        put(store, objects)
    await broker.become_active()
    try:
        return [broker.values(index) for index in range(2)]
    finally:
        broker.kill()
