"""The journal's promises: what was synced comes back, what was not may be cut off, and damage is told from both."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.storage import journal
from semel.log.storage.files import Buffer, DiskFiles, File, Files, MemoryFiles
from semel.log.storage.journal import HEAD_BYTES, SPARE_FILES_MAX, Bookmark, Damaged, Journal, JournalEntry
from semel.testing.faulty import Fault, FaultyFiles

FILE_BYTES = 1024
START = Bookmark(1, 0, 0)


def begun(files: Files) -> Journal:
    """A journal in its first life, its first file durable as it is behind a first checkpoint."""
    made = Journal(files, 1, 0, FILE_BYTES)
    files.sync_directory("journal")
    files.sync_directory("")
    sync(made)
    return made


def sync(written: Journal) -> None:
    job = written.begin_sync()
    job.run()
    written.finish_sync(job)


def payloads(files: Files, bookmark: Bookmark = START) -> list[bytes]:
    return [bytes(entry.payload) for entry in journal.read(files, bookmark)]


def append(written: Journal, *texts: bytes) -> None:
    for text in texts:
        written.append(1, [text])


def overwrite(files: Files, name: str, position: int, data: bytes) -> None:
    file = files.open(f"journal/{name}")
    file.write_at([data], position)
    file.close()


def names(files: Files) -> list[str]:
    return files.names("journal")


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path / "data")


def test_entries_come_back_in_order_each_with_its_place(files: Files) -> None:
    written = begun(files)
    parts: list[list[Buffer]] = [[b"one"], [b"t", bytearray(b"w"), memoryview(b"o")], []]
    ends = [written.append(kind, part) for kind, part in enumerate(parts)]
    expected = [(0, 3), (HEAD_BYTES + 3, 3), (2 * HEAD_BYTES + 6, 0)]
    found = list(journal.read(files, START))
    assert [(entry.position, len(entry.payload)) for entry in found] == expected
    assert [(entry.kind, bytes(entry.payload)) for entry in found] == [(0, b"one"), (1, b"two"), (2, b"")]
    assert [entry.end for entry in found] == ends
    written.close()


def test_reading_begins_wherever_a_bookmark_was_put(files: Files) -> None:
    written = begun(files)
    bookmarks = []
    for number in range(40):
        bookmarks.append(written.mark())
        append(written, b"%03d" % number * 30)
    for number, bookmark in enumerate(bookmarks):
        assert payloads(files, bookmark) == [b"%03d" % later * 30 for later in range(number, 40)]
    assert payloads(files, written.mark()) == []
    written.close()


def test_an_entry_larger_than_a_file_gets_a_file_of_its_size(files: Files) -> None:
    written = begun(files)
    append(written, b"small", b"l" * 5000)
    file = files.open(f"journal/{names(files)[1]}")
    # With room for the entry that says where the journal goes on.
    assert file.size() == 5000 + 2 * HEAD_BYTES
    file.close()
    append(written, b"small again")
    assert payloads(files) == [b"small", b"l" * 5000, b"small again"]
    written.close()


def test_what_a_recycled_file_held_before_is_not_read_again() -> None:
    files = MemoryFiles()
    written = begun(files)
    for number in range(4):
        # Every entry is as long as every other, so old ones stand exactly where new ones will.
        file = written.mark().file
        while written.mark().file == file:
            append(written, b"%d" % number * 100)
        written.recycle(written.end)
    bookmark = written.mark()
    append(written, b"n" * 100)
    assert payloads(files, bookmark) == [b"n" * 100]
    assert [name[:6] for name in names(files)] == [f"{bookmark.file:016x}"[:6], "spare-"]


def test_what_an_earlier_life_left_is_not_read_in_a_later_one() -> None:
    files = MemoryFiles()
    written = begun(files)
    append(written, b"a" * 50, b"b" * 50)
    later = Journal(files, 2, 0, FILE_BYTES)
    bookmark = later.mark()
    append(later, b"c" * 50)
    assert payloads(files, bookmark) == [b"c" * 50]


def test_files_are_kept_for_use_again_but_not_without_bound() -> None:
    files = MemoryFiles()
    written = begun(files)
    for _ in range(3 * SPARE_FILES_MAX):
        append(written, b"x" * 900)
    written.recycle(written.end)
    assert len(names(files)) == SPARE_FILES_MAX + 1


def test_files_that_somebody_removed_to_make_space_do_not_keep_the_journal_from_going_on(files: Files) -> None:
    """Nothing is lost with a spare file, nor with one that is to become one."""
    written = begun(files)
    for _ in range(3):
        append(written, *[b"e" * 900] * 4)
        superfluous, *_ = names(files)
        files.remove(f"journal/{superfluous}")
        written.recycle(written.end)
        for name in names(files):
            if name.startswith("spare-"):
                files.remove(f"journal/{name}")
        assert len(names(files)) == 1, "the one that is written to"
    bookmark = written.mark()
    append(written, b"f" * 900)
    assert payloads(files, bookmark) == [b"f" * 900]
    written.close()


def test_a_file_that_begins_where_an_earlier_one_began_does_not_make_two_spares_of_one() -> None:
    """A loss of power took everything, and the same entries come again in the next life."""
    files = MemoryFiles()
    append(begun(files), *[b"lost" * 225] * 4)
    written = Journal(files, 2, 0, FILE_BYTES)
    append(written, *[b"once" * 225] * 3)
    written.recycle(written.end)
    bookmark = written.mark()
    append(written, *[b"more" * 225] * 4)
    assert payloads(files, bookmark) == [b"more" * 225] * 4


def test_a_file_is_not_recycled_while_a_position_in_it_is_wanted() -> None:
    files = MemoryFiles()
    written = begun(files)
    append(written, b"a" * 500)
    bookmark = written.mark()
    append(written, b"b" * 400, b"c" * 500, b"d" * 500)
    written.recycle(bookmark.position)
    assert payloads(files, bookmark) == [b"b" * 400, b"c" * 500, b"d" * 500]


def test_a_stray_file_ahead_of_the_journal_is_used_or_removed() -> None:
    files = MemoryFiles()
    begun(files)
    files.open(f"journal/{777:016x}", create=True)
    later = Journal(files, 2, 100, FILE_BYTES)
    assert f"{777:016x}" not in names(files)
    later.recycle(100)
    assert [name for name in names(files) if not name.startswith("spare-")] == [f"{100:016x}"]


# Cut off or damaged


def test_a_torn_last_entry_is_cut_off_wherever_it_is_torn() -> None:
    for kept in range(HEAD_BYTES + 50):
        files = MemoryFiles()
        written = begun(files)
        append(written, b"a" * 50)
        end = written.end
        append(written, b"b" * 50)
        overwrite(files, names(files)[0], end + kept, bytes(HEAD_BYTES + 50 - kept))
        assert payloads(files) == [b"a" * 50], kept


def test_an_entry_that_was_durable_and_is_gone_is_damage_that_is_named() -> None:
    for broken in range(0, HEAD_BYTES + 50, 3):
        files = MemoryFiles()
        written = begun(files)
        append(written, b"a" * 50)
        end = written.end
        append(written, b"b" * 50)
        sync(written)
        append(written, b"c" * 50)
        first = names(files)[0]
        file = files.open(f"journal/{first}")
        byte = file.read_at(1, end + broken)
        overwrite(files, first, end + broken, bytes([byte[0] ^ 0xFF]))
        with pytest.raises(Damaged, match=rf"journal/{first}: no valid entry at offset {end}, though"):
            payloads(files)


def test_damage_is_proven_by_later_files_too() -> None:
    files = MemoryFiles()
    written = begun(files)
    append(written, b"a" * 900)
    end = written.end
    append(written, b"b" * 50)
    sync(written)
    append(written, b"c" * 50)
    first, second = names(files)
    # What is overwritten is the entry that says where to go on.
    overwrite(files, first, end, b"?")
    with pytest.raises(Damaged, match=f"{first}: the entries end at offset {end}, though {second} shows"):
        payloads(files)


def test_a_file_missing_in_the_middle_is_damage_if_it_was_durable() -> None:
    files = MemoryFiles()
    written = begun(files)
    append(written, b"a" * 900, b"b" * 900)
    sync(written)
    append(written, b"c" * 900)
    files.remove(f"journal/{names(files)[1]}")
    with pytest.raises(Damaged, match="shows that the journal was durable beyond it"):
        payloads(files)


def test_a_file_missing_in_the_middle_is_no_damage_if_it_was_not_durable_yet() -> None:
    files = MemoryFiles()
    written = begun(files)
    append(written, b"a" * 900, b"b" * 900, b"c" * 900)
    files.remove(f"journal/{names(files)[1]}")
    assert payloads(files) == [b"a" * 900]


def test_a_missing_file_that_the_bookmark_names_is_damage() -> None:
    files = MemoryFiles()
    begun(files)
    with pytest.raises(Damaged, match="missing, the checkpoint names it"):
        payloads(files, Bookmark(1, 555, 600))


def test_a_journal_is_untouched_until_the_first_entry() -> None:
    files = MemoryFiles()
    assert journal.is_untouched(files)
    written = begun(files)
    assert journal.is_untouched(files)
    append(written, b"")
    assert not journal.is_untouched(files)


STEPS = st.lists(
    st.one_of(st.integers(0, 1500), st.sampled_from(["sync", "recycle"])),
    max_size=25,
)


@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_no_loss_of_power_costs_what_was_synced_or_looks_like_damage(steps: list[int | str], seed: int) -> None:
    files = FaultyFiles()
    written = begun(files)
    texts: list[bytes] = []
    synced = 0
    bookmark, before = written.mark(), 0
    for step in steps:
        if step == "sync":
            sync(written)
            synced = len(texts)
        elif step == "recycle":
            # What a checkpoint does: its bookmark is durable, and so are the names.
            files.sync_directory("journal")
            bookmark, before = written.mark(), len(texts)
            written.recycle(bookmark.position)
            synced = len(texts)
        else:
            assert isinstance(step, int)
            texts.append(b"%04d" % len(texts) * (step // 4))
            append(written, texts[-1])
    found = payloads(files.survivors(seed), bookmark)
    assert found == texts[before : before + len(found)]
    assert before + len(found) >= synced


# Refusals


@pytest.mark.parametrize("keep", [0, 10, 40])
def test_a_refused_entry_leaves_no_trace(keep: int) -> None:
    files = FaultyFiles()
    written = begun(files)
    append(written, b"a" * 50)
    end = written.end
    files.arm(Fault("ENOSPC", call="write", keep=keep))
    with pytest.raises(OSError, match="No space"):
        append(written, b"b" * 50)
    assert written.end == end
    assert payloads(files.after_kill()) == [b"a" * 50]
    append(written, b"c" * 10)
    assert payloads(files.after_kill()) == [b"a" * 50, b"c" * 10]


@pytest.mark.parametrize("call", ["names", "create", "allocate", "write"])
@pytest.mark.parametrize("kind", ["ENOSPC", "EIO"])
def test_a_refused_roll_leaves_no_trace(call: str, kind: str) -> None:
    if (kind, call) == ("ENOSPC", "names"):
        pytest.skip("looking needs no space")
    files = FaultyFiles()
    written = begun(files)
    append(written, b"a" * 900)
    files.arm(Fault(kind, call=call, keep=5))  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r"error|No space"):
        append(written, b"b" * 500)
    append(written, b"c" * 10)
    assert payloads(files.after_kill()) == [b"a" * 900, b"c" * 10]
    append(written, b"b" * 500)
    sync(written)
    assert payloads(files.survivors(1)) == [b"a" * 900, b"c" * 10, b"b" * 500]
    assert [name for name in names(files) if name.startswith("spare-")] == []


def test_a_roll_takes_a_spare_file_and_needs_no_space() -> None:
    files = FaultyFiles()
    written = begun(files)
    append(written, b"a" * 900, b"b" * 900)
    written.recycle(written.end)
    sync(written)
    files.arm(Fault("ENOSPC", call="create", lasting=True))
    append(written, b"c" * 900)


# Syncing


@pytest.mark.parametrize("comes", ["before the disk is asked", "before the answer of the disk is heard"])
def test_an_entry_appended_while_a_sync_runs_is_not_durable_by_it_and_is_by_the_next(comes: str) -> None:
    """In between, the file that was synced has become full: its end is synced by the next."""
    files = FaultyFiles()
    written = begun(files)
    append(written, b"a" * 900)
    job = written.begin_sync()
    if comes == "before the answer of the disk is heard":
        job.run()
    append(written, b"b" * 900)
    if comes == "before the disk is asked":
        job.run()
    written.finish_sync(job)
    assert written.synced == job.target < written.end
    sync(written)
    assert written.synced == written.end
    assert payloads(files.survivors(lambda options: 0)) == [b"a" * 900, b"b" * 900]


def test_what_is_durable_stays_so_when_an_earlier_sync_is_heard_of_later() -> None:
    written = begun(MemoryFiles())
    append(written, b"a")
    earlier = written.begin_sync()
    append(written, b"b")
    sync(written)
    earlier.run()
    written.finish_sync(earlier)
    assert written.synced == written.end


def test_an_entry_of_fewer_bytes_than_its_own_head_is_none() -> None:
    """The checksum of nothing is 0, and such an entry would have no end."""
    files = MemoryFiles()
    written = begun(files)
    append(written, b"first")
    head = struct.pack("<4sIIIQQ", b"sml1", 12, 0, 1 | 1 << 8, written.end, written.end)
    overwrite(files, names(files)[0], written.end, head)
    assert payloads(files) == [b"first"]


class CountedFiles(MemoryFiles):
    """Files in memory that know how many of them are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open_count = 0

    def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
        file = super().open(path, create=create)
        self.open_count += 1
        return Counted(file, self)


class Counted:
    """An open file that says when it is closed."""

    def __init__(self, file: File, files: CountedFiles) -> None:
        self._file = file
        self._files = files

    def __getattr__(self, name: str) -> Callable[..., object]:
        method: Callable[..., object] = getattr(self._file, name)
        return method

    def close(self) -> None:
        self._files.open_count -= 1


def test_files_that_are_full_are_closed_once_they_are_durable() -> None:
    files = CountedFiles()
    written = begun(files)
    append(written, b"a" * 900)
    job = written.begin_sync()
    append(written, b"b" * 900, b"c" * 900)
    job.run()
    written.finish_sync(job)
    sync(written)
    assert files.open_count == 1
    append(written, b"d" * 900)
    written.begin_sync()
    written.close()
    assert files.open_count == 0
    assert isinstance(next(journal.read(files, START)), JournalEntry)
    assert len(payloads(files)) == 4
    assert files.open_count == 0
