"""A checkpoint puts into the store what was acknowledged, or nothing: what the disk has lost meanwhile is still in the
store's journal, and a start takes it from there.
"""

import pytest

from lives import Life, WatchedStore, names
from semel.log.storage.files import MemoryFile
from semel.log.storage.journal import Damaged
from semel.wire.batch import read_header

pytestmark = pytest.mark.virtual_time


def on_disk(life: Life) -> MemoryFile:
    """The first segment."""
    file = life.files.open(life.partition().segments[0].path)
    assert isinstance(file, MemoryFile)
    return file


def lose(life: Life, what: str) -> None:
    """The disk loses the batch at offset 1, the last one in its segment, or has something else in its place."""
    file = on_disk(life)
    size = read_header(file.data).batch_bytes
    if what == "a bit":
        file.data[2 * size - 5] ^= 1
    elif what == "a page":
        file.data[size : 2 * size] = bytes(size)
    elif what == "the end":
        del file.data[2 * size - 5 :]
    else:
        # The write never reached the disk, and another one had been there.
        file.data[size : 2 * size] = file.data[:size]
        file.data[size : size + 8] = (1).to_bytes(8)


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("is_young", [True, False])
@pytest.mark.parametrize("what", ["a bit", "a page", "the end", "a write"])
async def test_what_the_disk_lost_before_a_checkpoint_is_not_lost_in_the_store(
    what: str, is_young: bool, is_sealed: bool
) -> None:
    store = WatchedStore()
    life = await Life(store).start()
    await life.write(*names(0))
    if not is_young:
        await life.keep()
    await life.write(*names(1, 2) if is_sealed else names(1))
    content, floor = life.content(), store.floor
    lose(life, what)
    with pytest.raises(Damaged, match=r"records from offset [01] to 1 are lost|has lost its end"):
        await life.keep()
    assert store.floor == floor
    for files in (life.files, None):
        again = await Life(store, files).start()
        assert again.content() == content
        await again.keep()
        assert (await Life(store).start()).content() == content


async def test_what_is_uploaded_again_comes_from_the_store_if_the_disk_has_lost_it() -> None:
    """A checkpoint gives up the object of which most is not needed any more, and it was the only right copy."""
    store = WatchedStore()
    life = await Life(store).start()
    await life.write(*names(0))
    await life.write(*names(1, 2, 3), index=1)
    await life.keep()
    values = life.values()
    life.delete_records(3, index=1)
    await life.settle()
    on_disk(life).data[100] ^= 1
    before = store.keys("segments")
    for _ in range(2):
        await life.keep()
    assert before.isdisjoint(store.keys("segments"))
    assert life.values() == values
    assert (await Life(store).start()).values() == values


async def test_a_file_that_the_disk_has_cut_stays_whole_in_the_store() -> None:
    store = WatchedStore()
    life = await Life(store).start()
    await life.write(*names(0, 1, 2))
    await life.keep()
    values = life.values()
    del on_disk(life).data[100:]
    await life.keep()
    assert (await Life(store).start()).values() == values
