"""The seam to the disk: what the operating system does in pieces arrives whole, and what it says goes up as it is."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from semel.log.storage.files import BUFFERS_PER_CALL_MAX, Buffer, DiskFiles, Files, MemoryFiles


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path)


def test_buffers_of_any_kind_and_number_arrive_one_behind_the_other(files: Files) -> None:
    file = files.open("a", create=True)
    buffers: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three"), b""]
    assert file.write_at(buffers, 5) == 11
    assert file.read_at(100, 0) == b"\0\0\0\0\0onetwothree"
    many = [b"%04d" % number for number in range(BUFFERS_PER_CALL_MAX + 5)]
    assert file.write_at(many, 0) == 4 * len(many)
    assert file.read_at(4 * len(many), 0) == b"".join(many)
    file.close()


def test_a_missing_file_is_said_to_be_missing(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("a")
    with pytest.raises(FileNotFoundError):
        files.remove("a")
    assert files.names("nowhere") == []


def test_a_tree_stays_where_it_is_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    files = DiskFiles("./data")
    monkeypatch.chdir(elsewhere)
    files.open("a", create=True).close()
    assert files.names("") == ["a"]
    assert files.describe("a") == str(tmp_path / "data" / "a")
    assert not list(elsewhere.iterdir())


def test_space_is_allocated_and_cut_off(files: Files) -> None:
    file = files.open("a", create=True)
    file.write_at([b"12345"], 0)
    file.allocate(100)
    assert file.size() == 100
    file.allocate(50)
    assert file.size() == 100
    file.truncate(3)
    assert file.read_at(100, 0) == b"123"
    file.close()


def test_one_process_has_the_tree_at_a_time(files: Files) -> None:
    files.lock()
    other = files if isinstance(files, MemoryFiles) else DiskFiles(files.describe(""))
    with pytest.raises(BlockingIOError):
        other.lock()
    files.close()
    other.lock()
    other.close()


def test_a_tree_stays_locked_when_somebody_removes_the_file_that_shows_it(tmp_path: Path) -> None:
    """Two brokers that write to one journal lose what both have acknowledged."""
    files, other = DiskFiles(tmp_path), DiskFiles(tmp_path)
    files.lock()
    (tmp_path / "lock").unlink()
    with pytest.raises(BlockingIOError):
        other.lock()
    files.close()
    other.lock()
    other.close()


def test_what_is_written_or_read_in_pieces_is_whole_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev, pwrite, pread = os.pwritev, os.pwrite, os.pread

    def gathered(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        return pwritev(descriptor, [b"".join(buffers)[:5]], position)

    monkeypatch.setattr(os, "pwritev", gathered)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: pwrite(descriptor, data[:3], position))
    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: pread(descriptor, min(size, 4), position))
    file = DiskFiles(tmp_path).open("a", create=True)
    assert file.write_at([b"a" * 10, b"b" * 10], 2) == 20
    assert file.read_at(100, 2) == b"a" * 10 + b"b" * 10
    assert file.read_at(15, 2) == b"a" * 10 + b"b" * 5
    file.close()


def test_the_name_of_a_new_root_is_synced_and_every_one_above_it_that_was_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not say which file is synced")
    monkeypatch.setattr(os, "fsync", noted)
    DiskFiles(tmp_path / "a" / "b")
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]
    synced.clear()
    DiskFiles(tmp_path / "a" / "b")
    assert synced == []


def test_a_tree_that_was_let_go_of_is_free_though_a_forked_process_goes_on(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    files.lock()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    files.close()
    other = DiskFiles(tmp_path)
    other.lock()
    other.close()
    os.close(write)
    os.waitpid(child, 0)
    os.close(read)
