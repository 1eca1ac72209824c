"""A checkpoint puts into the store what was acknowledged, or nothing: what the disk has lost meanwhile is still in the
store's journal, and a start takes it from there.
"""

import pytest

from ledger import batch
from lives import NOW_MS, Life, WatchedStore, names
from semel.log.core.batch_checks import Sender
from semel.log.storage.aborted_blocks import BlockLayout
from semel.log.storage.files import MemoryFile, NotHere
from semel.log.storage.journal import Corrupt, Damaged
from semel.log.storage.segment import Stretch
from semel.wire.batch import TRANSACTIONAL_BIT, read_header

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


# One transaction in each block, and two blocks in a file.
LAYOUT = BlockLayout(1, 2)


async def abort(life: Life) -> None:
    """A transaction of one record, which is aborted."""
    log, rules = life.log, life.log.state.transaction_rules
    claim = rules.decide_init("copier", 60_000, None, lambda: log.new_producer_id(NOW_MS), NOW_MS)
    for entry in claim.entries:
        log.commit(entry)
    producer = claim.producer_id, claim.producer_epoch
    sent = batch(producer[0], 0, epoch=producer[1], attributes=TRANSACTIONAL_BIT, at_ms=NOW_MS)
    log.append(life.topic, life.partition(), read_header(sent), sent, NOW_MS, Sender(joins=True))
    end = rules.decide_end(
        "copier", *producer, False, lambda: log.new_producer_id(NOW_MS), NOW_MS, raises_epoch=True
    ).entry
    assert end is not None
    log.commit(end)
    await life.settle()


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
@pytest.mark.parametrize("harm", ["a bit", "the end", "another block"])
async def test_which_transactions_were_aborted_is_not_lost_in_the_store_either(harm: str, kept: int) -> None:
    """Readers of committed records would get an error for ever: nothing else says which records to leave out."""
    store = WatchedStore()
    life = await Life(store, aborted_blocks=LAYOUT).start()
    for _ in range(kept):
        await abort(life)
    await life.keep()
    for _ in range(5 - kept):
        await abort(life)
    everything, content, floor = life.partition().aborted.between(0, 10), life.content(), store.floor
    path, size, *_ = life.partition().aborted.files()[-1]
    block_bytes = LAYOUT.block_bytes
    file = life.files.open(path)
    assert isinstance(file, MemoryFile)
    if harm == "a bit":
        file.data[size - 1] ^= 1
    elif harm == "the end":
        del file.data[size - 1 :]
    else:
        file.data[size - block_bytes : size] = life.files.open(life.partition().aborted.files()[0].path).read_at(
            block_bytes, 0
        )
    with pytest.raises(Damaged, match=r"\.aborted: .*, but the journal in .* has them: start again"):
        await life.keep()
    assert store.floor == floor
    for files in (life.files, None):
        again = await Life(store, files, aborted_blocks=LAYOUT).start()
        assert again.content() == content
        assert again.partition().aborted.between(0, 10) == everything
        await again.keep()
        later = await Life(store, aborted_blocks=LAYOUT).start()
        assert later.partition().aborted.between(0, 10) == everything


async def test_which_transactions_were_aborted_comes_from_the_store_again_if_the_disk_has_lost_it() -> None:
    store = WatchedStore()
    life = await Life(store, aborted_blocks=LAYOUT).start()
    # As its role does.
    life.log.damage.doubt = life.cache.files.doubt
    for _ in range(5):
        await abort(life)
    await life.keep()
    aborted = life.partition().aborted
    everything, path = aborted.between(0, 10), aborted.files()[0].path
    file = life.files.open(path)
    file.write_at([b"\xff"], 20)
    with pytest.raises(NotHere):
        aborted.between(0, 10)
    assert not await life.cache.bring([Stretch(path, 0, 1)])
    assert aborted.between(0, 10) == everything
    file.write_at([b"\xff"], 20)
    with pytest.raises(Corrupt, match=rf"{path}: no block of aborted transactions at offset 0"):
        aborted.between(0, 10)
