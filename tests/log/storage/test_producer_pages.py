"""Pages of producers on disk: a checkpoint writes those that are new, and no others; whatever is there is what was
written, or is refused; and the files do not grow beyond twice what is needed.
"""

from collections.abc import Iterable, Iterator

import pytest

from ledger import Caller, Ledger, batch, check_tidy
from semel.log.core.producer_table import Page, Producers, Snapshot, TableBounds
from semel.log.storage import producer_pages
from semel.log.storage.files import Files, MemoryFile, MemoryFiles
from semel.log.storage.journal import Damaged
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.producer_pages import ProducerPages, buffers_of, pack_places, page_bytes, pages_at, pages_from
from semel.testing.faulty import Fault, FaultyFiles

BOUNDS = TableBounds(page=8, recent_min=1, recent_max=1, moved_at_once=1)


def heard(producers: Producers, ids: Iterable[int]) -> None:
    for producer_id in ids:
        producers.note(producer_id, 1000 + producer_id, 0, 0, 1, producer_id, -1)


def contents(pages: Iterable[Page]) -> list[list[tuple[int, bytes]]]:
    return [list(page.items()) for page in pages]


def read(files: Files, pages: Iterable[Page]) -> Iterator[Page]:
    return pages_at(memoryview(pack_places(pages)), files)


def bytes_on_disk(files: Files) -> int:
    return sum(files.open(producer_pages.path_of(number)).size() for number in producer_pages.numbers_in(files))


def begun(files: Files) -> tuple[Caller, PartitionLog]:
    """Who calls a log on these files, and a partition of its only topic."""
    caller = Caller(files, Ledger())
    caller.create("orders")
    (partition, *_) = caller.log.state.partitions.all()
    return caller, partition


def test_only_pages_that_are_new_are_written() -> None:
    files, producers = MemoryFiles(), Producers(BOUNDS)
    on_disk = ProducerPages(files, 0)
    heard(producers, range(800))
    assert on_disk.put(producers.pages)
    before = bytes_on_disk(files)
    assert len(producers.pages) >= 99
    # One leaves its page, and another takes its place in the dict.
    heard(producers, [400])
    assert on_disk.put(producers.pages)
    written = bytes_on_disk(files) - before
    assert 0 < written < 4 * max(map(page_bytes, producers.pages))
    assert contents(read(files, producers.pages)) == contents(producers.pages)


def test_few_pages_stay_in_the_checkpoint_and_have_no_file() -> None:
    files, producers = MemoryFiles(), Producers(BOUNDS)
    on_disk = ProducerPages(files, 100_000)
    heard(producers, range(100))
    assert not on_disk.put(producers.pages)
    assert bytes_on_disk(files) == 0
    packed = memoryview(b"".join(buffer for page in producers.pages for buffer in buffers_of(page)))
    assert contents(pages_from(packed)) == contents(producers.pages)


def test_pages_that_have_become_few_leave_their_files() -> None:
    files, producers = MemoryFiles(), Producers(BOUNDS)
    on_disk = ProducerPages(files, 2000)
    heard(producers, range(800))
    assert on_disk.put(producers.pages)
    producers.forget_silent(1780, 1000)
    assert not on_disk.put(producers.pages)
    assert on_disk.unneeded(producers.pages) == [producer_pages.path_of(1)]
    files.remove(producer_pages.path_of(1))
    heard(producers, range(800))
    assert on_disk.put(producers.pages)
    assert producer_pages.numbers_in(files) == [2]
    assert contents(read(files, producers.pages)) == contents(producers.pages)


def test_the_files_are_at_most_twice_as_large_as_what_is_in_them() -> None:
    files, producers = MemoryFiles(), Producers(BOUNDS)
    on_disk = ProducerPages(files, 0, 5_000)
    for turn in range(60):
        heard(producers, range(turn % 50, 500, 50) if turn else range(500))
        assert on_disk.put(producers.pages)
        for path in on_disk.unneeded(producers.pages):
            files.remove(path)
        needed = sum(page.place.size for page in producers.pages if page.place is not None)
        # Beside the file that is being written.
        assert bytes_on_disk(files) <= 2 * needed + 2 * 5_000
        assert contents(read(files, producers.pages)) == contents(producers.pages)
    assert len(producer_pages.numbers_in(files)) > 2


def test_a_start_goes_on_in_another_file() -> None:
    """A crash may have left bytes behind the last page that a checkpoint names."""
    files, producers = MemoryFiles(), Producers(BOUNDS)
    heard(producers, range(100))
    ProducerPages(files, 0).put(producers.pages)
    again = Producers(BOUNDS)
    again.restore(Snapshot(producers.snapshot().recent, list(read(files, producers.pages))))
    heard(again, [50])
    on_disk = ProducerPages(files, 0)
    assert on_disk.put(again.pages)
    assert {page.place.file for page in again.pages if page.place is not None} == {1, 2}
    assert contents(read(files, producers.pages)) == contents(producers.pages)
    assert contents(read(files, again.pages)) == contents(again.pages)


def test_what_another_process_wrote_meanwhile_is_not_written_over() -> None:
    """A start finds the directory locked by a broker that is about to end, and that keeps a last checkpoint."""
    files, producers = MemoryFiles(), Producers(BOUNDS)
    starting = ProducerPages(files, 0)
    heard(producers, range(100))
    ProducerPages(files, 0).put(producers.pages)
    before, later = contents(producers.pages), Producers(BOUNDS)
    heard(later, range(500, 600))
    assert starting.put(later.pages)
    assert contents(read(files, producers.pages)) == before
    assert contents(read(files, later.pages)) == contents(later.pages)


def test_pages_for_which_there_is_no_space_do_not_keep_the_last_of_it() -> None:
    """The journal needs it. Nor may each try leave another half of a page behind."""
    files, producers = FaultyFiles(), Producers(BOUNDS)
    on_disk = ProducerPages(files, 0)
    heard(producers, range(100))
    for more in range(100, 300, 100):
        before = bytes_on_disk(files)
        files.arm(Fault("ENOSPC", call="write", keep=100, lasting=True))
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                on_disk.put(producers.pages)
            assert bytes_on_disk(files) == before
        files.disarm()
        assert on_disk.put(producers.pages)
        assert contents(read(files, producers.pages)) == contents(producers.pages)
        heard(producers, range(more, more + 100))


def test_a_file_that_could_not_be_made_is_not_synced() -> None:
    """A sync that fails is the end of the broker."""
    files, producers = FaultyFiles(), Producers(BOUNDS)
    on_disk = ProducerPages(files, 1000)
    heard(producers, range(100))
    for full in (Fault("ENOSPC", call="create"), Fault("ENOSPC", call="write"), Fault("ENOSPC", call="create")):
        files.arm(full)
        with pytest.raises(OSError, match="No space left"):
            on_disk.put(producers.pages)
    producers.forget_silent(1090, 1000)
    assert not on_disk.put(producers.pages), "they are few now"
    assert on_disk.unneeded(producers.pages) == [producer_pages.path_of(1)]


def test_on_a_full_disk_the_reserve_makes_room_for_pages() -> None:
    """Nothing can be deleted before there is a checkpoint."""
    files = FaultyFiles()
    caller, partition = begun(files)
    for number in range(8):
        caller.append(partition, batch(caller.claim(f"id {number}"), 0))
    caller.log.checkpoint_now()
    for number in range(8, 16):
        caller.append(partition, batch(caller.claim(f"id {number}"), 0))
    assert "reserve" in files.names("")
    files.arm(
        Fault("ENOSPC", call="write", path=f"{producer_pages.DIRECTORY}/*"),
        Fault("ENOSPC", call="create", path="reserve"),
    )
    caller.log.checkpoint_now()
    assert files.fired["ENOSPC"] == 2
    assert "reserve" not in files.names("")
    caller.log.checkpoint_now()
    assert "reserve" in files.names("")
    check_tidy(files, caller.log)


@pytest.mark.parametrize("harm", ["a bit", "the end", "the file", "another place"])
def test_a_page_that_is_not_as_it_was_written_is_refused(harm: str) -> None:
    files, producers = MemoryFiles(), Producers(BOUNDS)
    heard(producers, range(100))
    ProducerPages(files, 0).put(producers.pages)
    path = producer_pages.path_of(1)
    file = files.open(path)
    assert isinstance(file, MemoryFile)
    first, second = producers.pages[:2]
    assert first.place is not None
    assert second.place is not None
    if harm == "a bit":
        file.write_at([b"\xff"], 30)
    elif harm == "the end":
        file.truncate(file.size() - 1)
    elif harm == "the file":
        files.remove(path)
    else:
        assert first.place.size == second.place.size
        file.write_at([file.read_at(first.place.size, first.place.position)], second.place.position)
    with pytest.raises(Damaged, match=r"no page of producers at offset|a file of producers is missing"):
        list(read(files, producers.pages))


def test_a_checkpoint_removes_the_files_that_it_does_not_need() -> None:
    files = MemoryFiles()
    caller, partition = begun(files)
    ids = [caller.claim(f"id {number}") for number in range(8)]
    for turn in range(12):
        for producer_id in ids:
            caller.append(partition, batch(producer_id, turn))
        caller.log.checkpoint_now()
        check_tidy(files, caller.log)
    assert len(partition.state.producers.pages) >= 3
