"""Starts from the checkpoint that the floor names: reads the state, and creates the files that it names. The files get
their size but no content, so a start takes as long on an empty disk as on a full one. The content is fetched when
somebody reads it; bytes that an earlier process has left on the disk are compared with their digest then.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from semel.log.core.slots import BrokenHistory, History
from semel.log.replica.cache import Cache
from semel.log.replica.contents import NOTHING, SEGMENTS, Contents, Extent, contents_in
from semel.log.replica.floor import FLOOR_KEY, Floor, read_floor
from semel.log.replica.slot import digest_of
from semel.log.replica.writer import answered, listed
from semel.log.storage import checkpoint
from semel.log.storage.checkpoint import Content
from semel.log.storage.files import Files
from semel.log.storage.journal import Damaged
from semel.log.store import Missing, Store


class Beginning(NamedTuple):
    """The state from which a broker starts."""

    floor: Floor
    # The slots that the checkpoint covers.
    history: History
    contents: Contents
    # The content of the checkpoint; None if there is none yet.
    content: Content | None


async def restore(store: Store, cache: Cache, accepted_losses: Collection[str] = ()) -> Beginning:
    """The newest checkpoint, with its files in the directory of this cache. Raises BrokenHistory if the store has lost
    or changed something of it, except for objects with records whose loss is accepted: who reads these gets an error.
    """
    while True:
        floor, _ = await answered(lambda: read_floor(store))
        if not floor.pieces:
            return Beginning(floor, History(), NOTHING, None)
        try:
            state, packed = await read_checkpoint(store, floor)
        except Missing as gone:
            await check_replaced(store, floor, gone)
            continue
        contents = contents_in((state, packed))
        lost = await _lost_object(store, contents, accepted_losses)
        if lost:
            await check_replaced(store, floor, lost)
            continue
        await _make_files(cache.files.disk, contents)
        if (await answered(lambda: read_floor(store)))[0].deleted_below <= floor.slot:
            cache.files.begin(contents)
            return Beginning(floor, History.from_record(state["journal"]), contents, (state, packed))


async def read_checkpoint(store: Store, floor: Floor) -> Content:
    """The content of this floor's checkpoint. Raises Missing if it was deleted meanwhile."""
    parts = []
    for key, size, digest in floor.pieces:
        body = (await answered(partial(store.get, key))).body
        if len(body) != size or digest_of([body]).hex() != digest:
            raise BrokenHistory(
                f"{store.describe()}: {key} is damaged: the floor knows another digest of it. The newest checkpoint "
                "needs it: put it back and start again; nothing was written"
            )
        parts.append(body)
    try:
        return checkpoint.decode(b"".join(parts), f"{store.describe()}: {floor.pieces[0].key}")
    except Damaged as damaged:
        raise BrokenHistory(str(damaged)) from None


async def check_replaced(store: Store, floor: Floor, gone: Missing | str) -> None:
    """Explain why an object that this floor's checkpoint needs is gone: raises BrokenHistory unless there is a newer
    floor.
    """
    if (await answered(lambda: read_floor(store)))[0] == floor:
        raise BrokenHistory(
            f"{gone}, and the object {FLOOR_KEY!r} names it: put it back, or the {FLOOR_KEY} if that one was "
            "replaced, and start again; nothing was written"
            if isinstance(gone, Missing)
            else gone
        ) from None


async def _lost_object(store: Store, contents: Contents, accepted: Collection[str]) -> str:
    """What is known of the first object with records that is gone or was cut; empty if all are whole, as far as a
    listing shows.
    """
    sizes = await listed(store, SEGMENTS)
    for key, size in contents.objects.items():
        if sizes.get(key) == size or key in accepted:
            continue
        try:
            # A listing may miss an object.
            if len(await answered(partial(store.get_range, key, max(size - 1, 0), 2))) == 1:
                continue
            what = f"has {sizes.get(key, 0)} bytes instead of {size}"
        except Missing:
            what = "is gone"
        rows = {path: sum(extent.size for extent in row if extent.key == key) for path, row in contents.files.items()}
        parts = ", ".join(f"{lost} bytes of {path}" for path, lost in rows.items() if lost)
        return (
            f"{store.describe()}: {key} {what}, and the newest checkpoint needs it for {parts}. Put it back and start "
            f"again; nothing was written. If it is lost for ever, start with --accept-loss {key}: reads of it fail then"
        )
    return ""


async def _make_files(disk: Files, contents: Contents) -> None:
    for path, row in contents.files.items():
        disk.make_directory(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        try:
            end = max((extent.position + extent.size for extent in row), default=0)
            if file.size() != end:
                # The bytes after that are not part of the checkpoint, and may belong to another file of this name.
                file.truncate(end)
        finally:
            file.close()
        await asyncio.sleep(0)


async def check_objects(store: Store, contents: Contents) -> None:
    """BrokenHistory if an object does not have the bytes of these contents. Raises Missing if one is gone."""
    inside: defaultdict[str, list[tuple[str, Extent]]] = defaultdict(list)
    for path, row in contents.files.items():
        for extent in row:
            inside[extent.key].append((path, extent))
    for key, extents in inside.items():
        body = (await answered(partial(store.get, key))).body
        for path, extent in extents:
            _part(path, extent, body, f"{store.describe()}: {key}")


def _part(path: str, extent: Extent, body: bytes, where: str) -> memoryview:
    """The part of a file that an object has."""
    part = memoryview(body)[extent.place : extent.place + extent.size]
    if len(part) != extent.size or digest_of([part]).hex() != extent.digest:
        raise BrokenHistory(f"{where} is damaged: the checkpoint knows another digest of {path} in it")
    return part
