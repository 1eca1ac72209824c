"""The faulty disk is a disk while nothing goes wrong, and does on demand what it is told to do."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from disk_contents import content, contents, every_outcome, synced_file
from hypothesis import given
from hypothesis import strategies as st

from semel.log.storage.files import DiskFiles, File, Files
from semel.testing.faulty import Crashed, Fault, FaultyFiles, every_fault, keep_all, lose_all

# A disk on which nothing goes wrong


def test_it_serves_as_files_where_files_are_wanted() -> None:
    files: Files = FaultyFiles()
    file: File = files.open("a", create=True)
    assert file.write_at([b"one", bytearray(b"two"), memoryview(b"three")], 2) == 11
    assert file.read_at(100, 0) == b"\0\0onetwothree"
    assert file.read_at(3, 5) == b"two"
    file.allocate(5)
    assert file.size() == 13
    file.allocate(15)
    file.truncate(14)
    assert file.size() == 14
    assert files.describe("a") == "faulty:a"


OPERATIONS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from("ab"), st.binary(max_size=9), st.integers(0, 12)),
    st.tuples(st.sampled_from(["truncate", "allocate"]), st.sampled_from("ab"), st.integers(0, 20)),
    st.tuples(st.just("read"), st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 12)),
    st.tuples(st.sampled_from(["create", "open"]), st.sampled_from(["a", "b", "d/a", "d/e/b"])),
    st.tuples(st.just("open"), st.sampled_from(["d", "d/e"])),
    st.tuples(st.just("rename"), st.sampled_from(["a", "b", "d/a"]), st.sampled_from(["a", "b", "d/a", "e/a"])),
    st.tuples(st.sampled_from(["remove", "remove_directory"]), st.sampled_from(["a", "b", "d/a", "d", "d/e"])),
    st.tuples(st.sampled_from(["make_directory", "names", "sync_directory"]), st.sampled_from(["d", "d/e"])),
)


def perform(files: Files, open_files: dict[str, File], operation: tuple[object, ...]) -> object:
    """The outcome of an operation in a form in which two disks can be compared."""
    name, *arguments = operation
    file = open_files.get(str(arguments[0]))
    try:
        match name:
            case "create" | "open":
                opened = files.open(arguments[0], create=name == "create")  # type: ignore[arg-type]
                open_files[str(arguments[0])[-1]] = opened
                return opened.size()
            case "write" if file is not None:
                return file.write_at([arguments[1]], arguments[2])  # type: ignore[list-item, arg-type]
            case "read" if file is not None:
                return file.read_at(arguments[1], arguments[2])  # type: ignore[arg-type]
            case "truncate" | "allocate" if file is not None:
                if arguments[1]:
                    getattr(file, str(name))(arguments[1])
                return file.size()
            case "write" | "read" | "truncate" | "allocate":
                return "no file"
            case _:
                return getattr(files, str(name))(*arguments)
    except OSError as error:
        return type(error)


@given(operations=st.lists(OPERATIONS, max_size=30))
def test_without_faults_it_is_not_to_be_told_from_a_real_disk(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    disk, faulty = DiskFiles(tmp_path_factory.mktemp("disk")), FaultyFiles()
    on_disk: dict[str, File] = {}
    on_faulty: dict[str, File] = {}
    for operation in operations:
        assert perform(faulty, on_faulty, operation) == perform(disk, on_disk, operation), operation
    for file in on_disk.values():
        file.close()


def test_the_tree_is_locked_for_one_and_a_survivor_is_not_locked() -> None:
    files = FaultyFiles()
    files.lock()
    with pytest.raises(BlockingIOError):
        files.lock()
    files.survivors(0).lock()
    files.after_kill().lock()
    files.close()
    files.lock()
    assert files.names("") == ["lock"]


def test_a_closed_file_serves_no_more() -> None:
    file = FaultyFiles().open("a", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.sync()


# What survives the death of the process


def test_a_killed_process_loses_nothing_that_was_written() -> None:
    files = FaultyFiles()
    files.open("a", create=True).write_at([b"data"], 0)
    files.crash()
    assert contents(files.after_kill()) == {"a": b"data"}


def test_what_was_not_synced_before_a_kill_may_still_be_lost_after_it() -> None:
    files = FaultyFiles()
    files.open("a", create=True).write_at([b"data"], 0)
    killed = files.after_kill()
    assert killed.survivors(lose_all).names("") == []
    killed.open("a").sync()
    killed.sync_directory("")
    assert contents(killed.survivors(lose_all)) == {"a": b"data"}


# Faults


def test_calls_are_counted_and_named() -> None:
    files = FaultyFiles()
    files.make_directory("d")
    file = files.open("d/a", create=True)
    file.write_at([b"ab", b"c"], 5)
    file.read_at(1, 0)
    file.sync()
    files.open("d/a", create=True).close()
    files.close()
    assert [tuple(call) for call in files.calls] == [
        (0, "make_directory", "d", 0),
        (1, "create", "d/a", 0),
        (2, "write", "d/a", 3),
        (3, "read", "d/a", 0),
        (4, "sync", "d/a", 0),
        (5, "open", "d/a", 0),
        (6, "close", "d/a", 0),
        (7, "close", "", 0),
    ]
    assert files.counts["close"] == 2


def test_a_crash_before_a_call_leaves_it_undone() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"old")
    files.arm(Fault("crash before"))
    with pytest.raises(Crashed):
        file.write_at([b"new"], 0)
    assert content(files.after_kill(), "a") == b"old"
    assert files.fired == {"crash before": 1}


def test_a_crash_after_a_call_leaves_it_done() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"old")
    file.write_at([b"new"], 0)
    files.arm(Fault("crash after", call="sync"))
    with pytest.raises(Crashed):
        file.sync()
    assert content(files.survivors(lose_all), "a") == b"new"


def test_after_a_crash_every_call_of_every_thread_crashes() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    files.crash()
    assert files.crashed
    calls: list[Callable[[], object]] = [
        lambda: files.open("a"),
        lambda: files.names(""),
        lambda: files.make_directory("d"),
        lambda: files.sync_directory(""),
        lambda: files.rename("a", "b"),
        lambda: files.remove("a"),
        lambda: files.remove_directory("d"),
        files.lock,
        files.close,
        lambda: file.write_at([b"x"], 0),
        lambda: file.read_at(1, 0),
        file.sync,
        lambda: file.truncate(0),
        lambda: file.allocate(1),
        file.size,
        file.close,
    ]
    crashed: list[object] = []

    def call_all() -> None:
        for call in calls:
            try:
                call()
            except Crashed:
                crashed.append(call)

    thread = threading.Thread(target=call_all)
    thread.start()
    thread.join()
    assert crashed == calls
    assert len(files.calls) == 1


def test_no_handler_for_ordinary_errors_outlives_a_crash() -> None:
    assert not issubclass(Crashed, Exception)


def test_a_torn_write_arrives_up_to_the_byte_and_the_process_dies() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"......")
    files.arm(Fault("torn", keep=2))
    with pytest.raises(Crashed):
        file.write_at([b"ABC", b"DEF"], 0)
    assert content(files.after_kill(), "a") == b"AB...."
    assert every_outcome(files, "a") == {b"......", b"AB...."}


def test_an_input_output_error_changes_nothing_and_the_next_call_succeeds() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"old")
    files.arm(Fault("EIO"))
    with pytest.raises(OSError, match="faulty:a") as caught:
        file.write_at([b"new"], 0)
    assert caught.value.errno == errno.EIO
    assert content(files, "a") == b"old"
    file.write_at([b"new"], 0)
    assert content(files, "a") == b"new"


def test_a_full_disk_may_take_the_beginning_of_a_write_first() -> None:
    files = FaultyFiles(Fault("ENOSPC", call="write", keep=2))
    file = files.open("a", create=True)
    with pytest.raises(OSError, match="No space") as caught:
        file.write_at([b"new"], 0)
    assert caught.value.errno == errno.ENOSPC
    assert content(files, "a") == b"ne"


def test_a_lasting_fault_strikes_until_it_is_disarmed_and_only_where_it_can() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"data")
    files.arm(Fault("ENOSPC", lasting=True))
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            file.allocate(100)
        with pytest.raises(OSError, match="No space"):
            files.open("b", create=True)
        assert file.read_at(4, 0) == b"data"
        file.sync()
        file.truncate(4)
    files.disarm()
    file.allocate(100)
    assert files.fired == {"ENOSPC": 6}
    assert files.names("") == ["a"]


def test_after_a_failed_sync_the_next_one_succeeds_and_saves_nothing_of_it() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"old.....")
    file.write_at([b"new"], 0)
    files.arm(Fault("failed sync"))
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write_at([b"NEXT"], 4)
    file.sync()
    assert content(files, "a") == b"new.NEXT"
    assert every_outcome(files, "a") == {b"old.NEXT", b"new.NEXT"}
    assert content(files.after_kill().survivors(lose_all), "a") == b"old.NEXT"


def test_after_a_failed_sync_of_a_directory_the_next_one_saves_nothing_of_it() -> None:
    files = FaultyFiles(Fault("failed sync"))
    files.open("a", create=True)
    with pytest.raises(OSError, match="Input/output error"):
        files.sync_directory("")
    files.open("b", create=True)
    files.sync_directory("")
    assert files.survivors(lose_all).names("") == ["b"]
    assert files.survivors(keep_all).names("") == ["a", "b"]


def test_a_fault_waits_for_its_number_its_kind_of_call_and_its_path() -> None:
    files = FaultyFiles(Fault("EIO", at=3, call="write", path="journal/*"))
    files.make_directory("journal")
    journal = files.open("journal/1", create=True)
    journal.write_at([b"x"], 0)
    other = files.open("other", create=True)
    other.write_at([b"x"], 0)
    journal.read_at(1, 0)
    assert not files.fired
    with pytest.raises(OSError, match="journal/1"):
        journal.write_at([b"x"], 0)


def test_a_survivor_can_have_faults_of_its_own() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"data")
    for after in (files.survivors(0, Fault("crash before")), files.after_kill(Fault("crash before"))):
        with pytest.raises(Crashed):
            after.names("")


def replace_safely(files: Files) -> None:
    """Replace the content of `a`: write it anew, sync, rename over the old, sync the directory."""
    file = files.open("new", create=True)
    file.write_at([b"n" * 1000], 0)
    file.sync()
    file.close()
    files.rename("new", "a")
    files.sync_directory("")


def replace_rashly(files: Files) -> None:
    """The same without syncing the new content."""
    file = files.open("new", create=True)
    file.write_at([b"n" * 1000], 0)
    file.close()
    files.rename("new", "a")
    files.sync_directory("")


def outcomes_under_every_fault(replace: Callable[[Files], None]) -> set[bytes]:
    rehearsal = FaultyFiles()
    synced_file(rehearsal, "a", b"old")
    first = len(rehearsal.calls)
    replace(rehearsal)
    found: set[bytes] = set()
    for fault in every_fault(rehearsal.calls[first:]):
        files = FaultyFiles(fault)
        synced_file(files, "a", b"old")
        with pytest.raises((Crashed, OSError)):
            replace(files)
        assert files.fired[fault.kind] == 1
        found.update(content(survivor, "a") for survivor in files.every_survivor())
        found.add(content(files.after_kill(), "a"))
    return found


def test_every_fault_at_every_call_shows_that_a_careful_program_is_careful() -> None:
    assert outcomes_under_every_fault(replace_safely) == {b"old", b"n" * 1000}


def test_every_fault_at_every_call_shows_that_a_rash_program_is_rash() -> None:
    assert outcomes_under_every_fault(replace_rashly) > {b"old", b"n" * 1000}


def test_every_kind_of_fault_is_in_the_enumeration() -> None:
    rehearsal = FaultyFiles()
    replace_safely(rehearsal)
    faults = list(every_fault(rehearsal.calls))
    assert {fault.kind for fault in faults} == {"crash before", "crash after", "torn", "EIO", "ENOSPC", "failed sync"}
    assert {fault.keep for fault in faults if fault.kind == "torn"} == {1, 500, 512, 999}
    assert len(set(faults)) == len(faults)


def test_a_sync_in_one_thread_and_writes_in_another_do_not_disturb_each_other() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a")
    writing = threading.Event()
    writing.set()

    def keep_syncing() -> None:
        while writing.is_set():
            file.sync()

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    for position in range(300):
        file.write_at([b"x"], position)
    writing.clear()
    thread.join()
    file.sync()
    assert content(files.survivors(lose_all), "a") == b"x" * 300


def test_it_touches_no_real_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = FaultyFiles()
    synced_file(files, "a", b"data")
    files.lock()
    assert list(tmp_path.iterdir()) == []
