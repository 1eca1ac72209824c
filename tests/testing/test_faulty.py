"""The faulty disk keeps its own promises: what it does on demand, what it may lose, and what it may never lose."""

import errno
import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.storage.files import DiskFiles, File, Files
from semel.testing.faulty import Crashed, Fault, FaultyFile, FaultyFiles, every_fault, keep_all, lose_all
from semel.testing.page_cache import SECTOR_BYTES


def synced_file(files: FaultyFiles, path: str, content: bytes = b"") -> FaultyFile:
    """A file whose name and content would survive anything."""
    file = files.open(path, create=True)
    file.write_at([content], 0)
    file.sync()
    files.sync_directory(path.rpartition("/")[0])
    return file


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    return file.read_at(file.size(), 0)


def contents(files: Files, path: str = "") -> dict[str, bytes]:
    return {name: content(files, f"{path}/{name}".strip("/")) for name in files.names(path)}


def every_outcome(files: FaultyFiles, path: str) -> set[bytes]:
    return {content(survivor, path) for survivor in files.every_survivor()}


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


@settings(deadline=None)
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


# What survives a loss of power


def test_what_was_synced_survives_whatever_is_chosen() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"x" * 2000)
    file.truncate(1500)
    file.write_at([b"y" * 100], 700)
    file.sync()
    file.write_at([b"later"], 3000)
    for survivor in files.every_survivor():
        assert content(survivor, "a")[:1500] == b"x" * 700 + b"y" * 100 + b"x" * 700


def test_a_write_that_was_not_synced_survives_or_does_not() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"before").write_at([b"AFTER"], 0)
    assert every_outcome(files, "a") == {b"before", b"AFTERe"}
    assert content(files.survivors(lose_all), "a") == b"before"
    assert content(files.survivors(keep_all), "a") == b"AFTERe"
    assert files.fired["lost write"] == 2


def test_any_subset_of_the_sectors_of_a_write_may_survive() -> None:
    files = FaultyFiles()
    old, new = b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES
    synced_file(files, "a", old * 3).write_at([new * 3], 0)
    expected = {b"".join(sectors) for sectors in itertools.product([old, new], repeat=3)}
    assert every_outcome(files, "a") == expected
    assert files.fired["partly lost write"] > 0


def test_sectors_are_those_of_the_disk_and_not_those_of_the_write() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"o" * 600).write_at([b"n" * 20], SECTOR_BYTES - 10)
    before, after = b"o" * (SECTOR_BYTES - 10), b"o" * (600 - SECTOR_BYTES - 10)
    middles = [left * 10 + right * 10 for left in (b"o", b"n") for right in (b"o", b"n")]
    assert every_outcome(files, "a") == {before + middle + after for middle in middles}


def test_any_subset_of_several_writes_may_survive() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"...")
    for position in range(3):
        file.write_at([b"X"], position)
    expected = {bytes(three) for three in itertools.product(b".X", repeat=3)}
    assert every_outcome(files, "a") == expected


def test_a_lost_write_leaves_zeros_where_the_file_grew_behind_it() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a")
    file.write_at([b"1"], 0)
    file.write_at([b"2"], 1)
    assert every_outcome(files, "a") == {b"", b"\0", b"\0\0", b"1", b"12", b"\x002", b"1\0"}


def test_a_truncation_survives_or_does_not_and_later_writes_do_not_care() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"abcdef")
    file.truncate(2)
    file.write_at([b"X"], 0)
    assert every_outcome(files, "a") == {b"abcdef", b"Xbcdef", b"ab", b"Xb"}
    assert files.fired["lost size"] > 0


def test_an_allocation_survives_once_it_is_synced() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"ab")
    file.allocate(4)
    assert every_outcome(files, "a") == {b"ab", b"ab\0\0"}
    file.sync()
    assert every_outcome(files, "a") == {b"ab\0\0"}


def test_a_new_file_needs_its_directory_synced_though_it_is_synced_itself() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    file.write_at([b"data"], 0)
    file.sync()
    assert [contents(survivor) for survivor in files.every_survivor()] == [{}, {"a": b"data"}]
    files.sync_directory("")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{"a": b"data"}]


def test_syncing_a_directory_does_not_save_what_is_in_its_files() -> None:
    files = FaultyFiles()
    files.open("a", create=True).write_at([b"data"], 0)
    files.sync_directory("")
    assert contents(files.survivors(lose_all)) == {"a": b""}


def test_a_directory_that_is_lost_takes_all_below_it_along() -> None:
    files = FaultyFiles()
    files.make_directory("d/e")
    file = files.open("d/e/a", create=True)
    file.write_at([b"data"], 0)
    file.sync()
    files.sync_directory("d/e")
    files.sync_directory("d")
    without = files.survivors(lose_all)
    assert [without.names(path) for path in ("", "d", "d/e")] == [[], [], []]
    with pytest.raises(FileNotFoundError):
        without.open("d/e/a")
    files.sync_directory("")
    assert contents(files.survivors(lose_all), "d/e") == {"a": b"data"}


def test_a_rename_is_atomic_and_survives_or_does_not_until_the_directory_is_synced() -> None:
    files = FaultyFiles()
    synced_file(files, "target", b"old")
    synced_file(files, "new", b"new")
    files.rename("new", "target")
    outcomes = [contents(survivor) for survivor in files.every_survivor()]
    assert outcomes == [{"target": b"old", "new": b"new"}, {"target": b"new"}]
    files.sync_directory("")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{"target": b"new"}]


def test_a_file_renamed_before_its_content_was_synced_may_be_empty_under_its_new_name() -> None:
    files = FaultyFiles()
    synced_file(files, "target", b"old")
    files.open("new", create=True).write_at([b"new"], 0)
    files.rename("new", "target")
    files.sync_directory("")
    assert contents(files.survivors(lose_all)) == {"target": b""}


def test_a_file_never_survives_under_two_names() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"data")
    files.rename("a", "b")
    files.rename("b", "c")
    assert {tuple(survivor.names("")) for survivor in files.every_survivor()} == {("a",), ("b",), ("c",)}


def test_a_rename_between_directories_needs_both_synced() -> None:
    files = FaultyFiles()
    files.make_directory("one")
    files.make_directory("two")
    files.sync_directory("")
    synced_file(files, "one/a", b"data")
    files.rename("one/a", "two/a")
    files.sync_directory("two")
    assert contents(files.survivors(lose_all), "one") == {"a": b"data"}
    files.sync_directory("one")
    assert contents(files.survivors(lose_all), "two") == {"a": b"data"}


def test_a_removed_file_may_come_back_until_the_directory_is_synced() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"data")
    files.remove("a")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{"a": b"data"}, {}]
    files.sync_directory("")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{}]


def test_changes_of_names_survive_independently_of_their_order() -> None:
    files = FaultyFiles()
    for name in "ab":
        files.open(name, create=True)
    outcomes = {tuple(survivor.names("")) for survivor in files.every_survivor()}
    assert outcomes == {(), ("a",), ("b",), ("a", "b")}


def test_the_same_seed_leaves_the_same_and_seeds_differ() -> None:
    files = FaultyFiles()
    synced_file(files, "a").write_at([bytes(range(256)) * 40], 0)
    seeds = [content(files.survivors(seed), "a") for seed in range(20)]
    assert seeds == [content(files.survivors(seed), "a") for seed in range(20)]
    assert len(set(seeds)) >= 8


def test_what_survived_once_survives_the_next_loss_of_power() -> None:
    files = FaultyFiles()
    files.open("a", create=True).write_at([b"data"], 0)
    survivor = files.survivors(keep_all)
    assert contents(survivor.survivors(lose_all)) == {"a": b"data"}


def test_a_survivor_has_nothing_in_common_with_the_disk_it_came_from() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"data")
    survivor, killed = files.survivors(0), files.after_kill()
    file.write_at([b"XXXX"], 0)
    survivor.open("a").write_at([b"YYYY"], 0)
    assert (content(files, "a"), content(survivor, "a"), content(killed, "a")) == (b"XXXX", b"YYYY", b"data")


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.tuples(st.integers(0, 1200), st.integers(1, 1300)), st.sampled_from(["sync", "failed sync"])),
        max_size=12,
    ),
    st.integers(0, 2**32),
)
def test_every_byte_that_survives_was_written_there_and_none_is_older_than_its_sync(
    steps: list[tuple[int, int] | str], seed: int
) -> None:
    """Held against a model that keeps, for every byte of the file, the values that it could have."""
    files = FaultyFiles()
    file = synced_file(files, "a")
    possible: list[set[int]] = []
    doubted: list[set[int]] = []
    certain_bytes = 0
    for value, step in enumerate(steps, start=1):
        if step == "sync":
            file.sync()
            # A sector given up by a failed sync may still hold what it held before, unless overwritten and synced.
            possible = [{max(values)} | earlier for values, earlier in zip(possible, doubted, strict=True)]
        elif step == "failed sync":
            files.arm(Fault("failed sync"))
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
            doubted = [set(values) for values in possible]
        else:
            position, size = step
            file.write_at([bytes([value]) * size], position)
            grown = max(0, position + size - len(possible))
            possible += [{0} for _ in range(grown)]
            doubted += [set() for _ in range(grown)]
            for at in range(position, position + size):
                possible[at].add(value)
        if step == "sync" and not any(doubted):
            certain_bytes = len(possible)
    survived = content(files.survivors(seed), "a")
    assert certain_bytes <= len(survived) <= len(possible)
    assert all(byte in values for byte, values in zip(survived, possible, strict=False))


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
