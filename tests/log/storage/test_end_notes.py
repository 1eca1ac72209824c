"""The notes beside the journal: never too high, never lost by a torn write, and known to be another broker's."""

import pytest

from semel.log.storage import aside, end_notes
from semel.log.storage.aside import KEPT_MS, Aside
from semel.log.storage.end_notes import NOTHING_KNOWN, begin_notes
from semel.log.storage.files import Files, MemoryFiles
from semel.testing.faulty import Crashed, Fault, FaultyFiles, lose_all

NOW = 1_700_000_000.0


def noted(files: Files, *positions: int) -> None:
    notes = begin_notes(files, NOTHING_KNOWN, "a-cluster", 4096)
    notes.start(0)
    for position in positions:
        notes.note(position)


def durable(files: Files) -> int | None:
    note = end_notes.read(files)
    return None if note is None else note.durable


def test_the_newest_note_counts() -> None:
    files = MemoryFiles()
    noted(files, 100, 200, 300)
    assert durable(files) == 300


def test_a_note_never_goes_back_while_the_broker_runs() -> None:
    files = MemoryFiles()
    noted(files, 300, 200)
    assert durable(files) == 300


@pytest.mark.parametrize("keep", [1, 20, 30])
def test_a_note_that_is_torn_leaves_the_one_before(keep: int) -> None:
    files = FaultyFiles()
    notes = begin_notes(files, NOTHING_KNOWN, "a-cluster", 4096)
    notes.start(100)
    files.arm(Fault("torn", call="write", keep=keep))
    with pytest.raises(Crashed):
        notes.note(200)
    assert durable(files.after_kill()) == 100


def test_a_loss_of_power_leaves_an_older_note_or_none_at_all_but_no_higher_one() -> None:
    files = FaultyFiles()
    noted(files, 100, 200)
    assert durable(files.survivors(lose_all)) == 0
    assert {durable(files.survivors(seed)) for seed in range(50)} <= {0, 100, 200}


@pytest.mark.parametrize("page", [0, 1])
def test_one_damaged_page_leaves_a_note(page: int) -> None:
    files = MemoryFiles()
    noted(files, 100, 200)
    files.open(end_notes.NAME).write_at([bytes(4096)], page * 4096)
    assert durable(files) in (100, 200)


def test_a_file_without_a_whole_note_says_nothing() -> None:
    files = MemoryFiles()
    assert durable(files) is None
    noted(files, 100)
    files.open(end_notes.NAME).write_at([bytes(8192)], 0)
    assert durable(files) is None


def test_after_a_loss_of_power_the_run_of_the_machine_is_another_one() -> None:
    files = FaultyFiles()
    noted(files, 100)
    note = end_notes.read(files)
    assert note is not None
    assert end_notes.is_same_run(note, files.after_kill())
    assert not end_notes.is_same_run(note, files.survivors(1))
    assert not end_notes.is_same_run(NOTHING_KNOWN, files)


def test_what_was_set_aside_is_kept_for_its_time_and_two_starts_at_once_share_no_place() -> None:
    files = MemoryFiles()
    for content in (b"one", b"two"):
        files.open("topics/lost.log", create=True).write_at([content], 0)
        Aside(files, lambda: NOW).move(["topics/lost.log"])
    found = list(aside.kept(files))
    assert [file.size for file in found] == [3, 3]
    now_ms = int(NOW * 1000)
    assert list(aside.kept_before(files, now_ms + KEPT_MS)) == []
    late = list(aside.kept_before(files, now_ms + KEPT_MS + 1000))
    assert late == found
    aside.remove(files, late)
    assert list(aside.kept(files)) == []
    assert files.names(aside.DIRECTORY) == []


def test_what_a_person_keeps_beside_it_is_never_removed_by_the_broker() -> None:
    """`semel repair` keeps copies there, too, under names of its own."""
    files = MemoryFiles()
    files.make_directory(aside.DIRECTORY)
    files.open(f"{aside.DIRECTORY}/entry-7.json", create=True)
    assert list(aside.kept_before(files, 1 << 50)) == []
