"""What `semel salvage` gets out of a damaged store: nothing false, most of it, and the store is as it was."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from damaged_stores.scenes import Scene, objects_of, put, scene
from damaged_stores.test_damaged_stores import some_cells
from damaged_stores.trial import damaged, kind_of
from lives import WatchedStore
from semel.log.core.slots import BrokenHistory
from semel.log.replica.salvage import salvage_from_store
from semel.log.replica.slot import digest_of
from semel.log.storage.files import DiskFiles
from semel.log.storage.log import Log
from semel.log.storage.remedy import mend


@pytest.fixture(scope="module")
def old() -> Scene:
    return scene("old", "killed", "start")


def salvaged(objects: dict[str, bytes], place: Path) -> tuple[list[list[bytes]], list[str]]:
    """The values in each partition, and what is lost."""
    store, lost = WatchedStore(), list[str]()
    put(store, objects)
    before = objects_of(store)
    asyncio.run(salvage_from_store(store, DiskFiles(place), lost.append))
    assert objects_of(store) == before
    mend(DiskFiles(place), lost.append)
    log = Log.open(DiskFiles(place), new_cluster_id=None)
    try:
        return [
            [digest_of([data]) for _, data in partition.batches(partition.state.log_start, partition.readable)]
            for partition in log.state.partitions.used()
        ], lost
    finally:
        log.abandon()


def test_all_of_a_store_without_damage_comes_out(old: Scene, tmp_path: Path) -> None:
    assert salvaged(dict(old.objects), tmp_path) == (old.acknowledged, [])


def test_whatever_happens_to_an_object_nothing_false_comes_out(old: Scene, tmp_path: Path) -> None:
    """Of the newest checkpoint an older one takes the place, and the journal does the rest."""
    chance = Random(7)
    whole = set[str]()
    for number, (key, damage) in enumerate(some_cells(old, chance)):
        objects = damaged(old, key, damage, chance)
        kind = kind_of(key, old.objects[key])
        if objects is None:
            continue
        try:
            found, lost = salvaged(objects, tmp_path / str(number))
        except BrokenHistory:
            assert kind in ("format", "floor", "checkpoints"), (key, damage)
            continue
        for values, acknowledged in zip(found, old.acknowledged, strict=False):
            places = iter(acknowledged)
            assert all(value in places for value in values), (key, damage, "false")
        if found == old.acknowledged:
            whole.add(kind)
        else:
            assert lost, (key, damage, "lost without a word")
    assert whole >= {"floor", "checkpoints", "lease", "format"}
