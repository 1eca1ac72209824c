"""Reads as much of the log in a store as can be proven, into a directory, and writes nothing into the store.

It begins with the newest checkpoint that is whole, also if the floor does not name it or is gone, and follows the
journal from there to the first slot that is gone or damaged. Bytes of segments whose object is gone or damaged stay
zeros in the directory, and its repair leaves them out.
"""

from collections.abc import Callable, Container
from typing import Any, Final, cast

from semel.log.core.slots import BrokenHistory, History
from semel.log.replica.floor import FLOOR_KEY, Floor, Piece, read_floor
from semel.log.replica.holes import Overtaken
from semel.log.replica.journal import SlotJournal
from semel.log.replica.lease import read_lease
from semel.log.replica.membership import read_cluster_id
from semel.log.replica.move import cache_without_limit, settle_down
from semel.log.replica.reader import SLOTS_PER_LOOK, SlotReader
from semel.log.replica.restore import read_checkpoint, restore
from semel.log.replica.slot import digest_of
from semel.log.replica.uploads import CHECKPOINTS
from semel.log.storage import checkpoint
from semel.log.storage.cache import mark_as_cache
from semel.log.storage.examination import IMPOSSIBLE
from semel.log.storage.files import Files
from semel.log.storage.journal import Damaged
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.store import FORMAT_KEY, Missing, Store
from semel.log.store.contract import Found


class _Everything(Container[str]):
    """The keys of all objects: the loss of any is accepted."""

    def __contains__(self, key: object) -> bool:
        return True


class _View:
    """The store as it would be if its floor named this checkpoint."""

    def __init__(self, store: Store, floor: Floor) -> None:
        self._store = store
        self._floor = floor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str) -> Found:
        return Found(self._floor.encode(), "") if key == FLOOR_KEY else await self._store.get(key)


_UNREADABLE: Final = (Missing, BrokenHistory, Damaged, *IMPOSSIBLE)


async def salvage_from_store(store: Store, files: Files, lose: Callable[[str], None]) -> None:
    """Make an empty directory one that holds what is left of this log; `lose` gets a line for each loss. Raises
    BrokenHistory if there is nothing to begin with, or StoreError.
    """
    floor, cluster_id = await _beginning(store, lose)
    view = cast(Store, _View(store, floor))
    mark_as_cache(files, store.describe(), cluster_id)
    cache = cache_without_limit(view, files)
    beginning = await restore(view, cache, _Everything())  # type: ignore[arg-type]
    for path, failure in (await cache.bring(cache.files.all_lacking())).items():
        lose(f"{path}: {failure}")
    entries = SlotJournal(0)
    entries.follow(beginning.history.position)
    # What could not be fetched is a hole, which a verification of the directory finds.
    log = Log.beside(cache.files, entries, cluster_id, LogSettings(), beginning.content)
    reader = SlotReader(view, entries, log, beginning.history)
    try:
        try:
            while await reader.read_on(SLOTS_PER_LOOK):
                pass
            lease = await read_lease(store)
            hole = await reader.find_hole(lease)
            if hole is not None:
                raise hole
        except (BrokenHistory, Overtaken) as damage:
            lose(str(damage))
        settle_down(log)
    finally:
        log.abandon()


async def _beginning(store: Store, lose: Callable[[str], None]) -> tuple[Floor, str]:
    """The newest checkpoint that is whole, and the id of the cluster."""
    try:
        floor, _ = await read_floor(store)
        if not floor.pieces:
            return floor, read_cluster_id((await store.get(FORMAT_KEY)).body, store.describe())
        state, _ = await read_checkpoint(store, floor)
        return floor, str(state["cluster_id"])
    except _UNREADABLE as damage:
        lose(f"the newest checkpoint, and what only it knew: {damage}")
    older: list[tuple[int, Floor, str]] = []
    async for key, size in store.list(CHECKPOINTS):
        try:
            body = (await store.get(key)).body
            state, _ = checkpoint.decode(body, key)
            history = History.from_record(state["journal"])
            piece = Piece(key, size, digest_of([body]).hex())
            older.append((history.next_slot, Floor(history.epoch, history.next_slot, 0, (piece,)), state["cluster_id"]))
        except _UNREADABLE as damage:
            lose(f"{key}: {damage}")
    if not older:
        raise BrokenHistory(f"{store.describe()}: no checkpoint is whole, and the floor names no other beginning")
    _, floor, cluster_id = max(older, key=lambda one: one[0])
    return floor, cluster_id
