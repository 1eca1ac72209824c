"""The directory of a broker on a store is a cache: no damage to it changes what the broker serves."""

from random import Random

import pytest

from damaged_stores.on_a_clock import on_a_clock
from lives import Life, WatchedStore, names, written
from semel.log.core.slots import BrokenHistory
from semel.log.replica.membership import cluster_of
from semel.log.storage.cache import mark_as_cache, take_as_cache
from semel.log.storage.files import MemoryFiles
from semel.testing.stores import MemoryStore

DAMAGES = ("missing", "empty", "cut", "longer", "flipped bit", "zeroed", "another's")


def damaged(content: bytes, damage: str, others: list[bytes], chance: Random) -> bytes | None:
    """The file with this damage; None if it is gone."""
    at = chance.randrange(max(len(content), 1))
    return {
        "missing": None,
        "empty": b"",
        "cut": content[:at],
        "longer": content + content,
        "flipped bit": content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :] if content else b"x",
        "zeroed": bytes(len(content)),
        "another's": chance.choice(others) if others else b"",
    }[damage]


def put(files: MemoryFiles, tree: dict[str, bytes | None]) -> None:
    for path, content in tree.items():
        if content is not None:
            files.make_directory(path.rpartition("/")[0])
            files.open(path, create=True).write_at([content], 0)


@pytest.mark.parametrize("is_cold", [False, True], ids=["all is fetched", "what is read is fetched"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_to_a_file_of_the_cache_changes_what_is_served(damage: str, is_cold: bool) -> None:
    async def story() -> None:
        store, chance = WatchedStore(), Random(3)
        first = await written(store)
        await first.write(*names(40, 41), index=1)
        await first.keep()
        await first.write(*names(50), index=1)
        expected = [first.values(index) for index in range(2)]
        tree = {path: bytes(content) for path, content in first.files._contents.items()}  # type: ignore[union-attr]
        first.end()
        assert len(tree) > 4
        for path, content in tree.items():
            others = [other for other in tree.values() if other != content]
            files = MemoryFiles()
            put(files, {**tree, path: damaged(content, damage, others, chance)})
            again = await Life(store, files, is_cold=is_cold).start()
            if is_cold:
                await again.warm()
            assert [again.values(index) for index in range(2)] == expected, path
            again.end()

    on_a_clock(story())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mark_of_a_cache_makes_no_other_log_of_it(damage: str) -> None:
    """The broker goes on with the log of the store, or says that the directory is the cache of another cluster."""

    async def story() -> None:
        files, other = MemoryFiles(), MemoryFiles()
        for each, cluster_id in ((files, "a cluster"), (other, "another cluster")):
            take_as_cache(each)
            mark_as_cache(each, MemoryStore().describe(), cluster_id)
        content, foreign = bytes(files._contents["cache"]), bytes(other._contents["cache"])
        for seed in range(20):
            left = MemoryFiles()
            put(left, {"cache": damaged(content, damage, [foreign], Random(seed))})
            known = take_as_cache(left)
            store = WatchedStore()
            await Life(store).start()
            assert (await Life(store).stand_by()).cluster_id == "a cluster"
            if known in ("", "a cluster"):
                continue
            with pytest.raises(BrokenHistory, match="is the cache of cluster"):
                await cluster_of(store, "new", known)

    on_a_clock(story())
