"""What holds on macOS, which lacks some of Linux's calls: the broker runs, what it syncs reaches the disk, and `serve`
says what it cannot promise. The calls are taken away here, and F_FULLFSYNC is played by a double.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from producing import deliver, idempotent_producer
from semel.log.storage.files import DiskFiles, not_promised
from semel.testing.broker import FaultyBroker

F_FULLFSYNC = 51
LACKING = ("fdatasync", "posix_fallocate", "RWF_NOWAIT", "sched_getaffinity")


class FullSync:
    """`fcntl.fcntl` of macOS, as far as semel calls it."""

    def __init__(self) -> None:
        self.calls = 0
        # What the file system answers, where it cannot or the disk is broken.
        self.error: int | None = None
        self.plain_syncs = 0
        self._fsync = os.fsync

    def fcntl(self, descriptor: int, command: int, _: int = 0) -> int:
        assert command == F_FULLFSYNC
        self.calls += 1
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        self._fsync(descriptor)
        return 0

    def fsync(self, descriptor: int) -> None:
        self.plain_syncs += 1
        self._fsync(descriptor)


@pytest.fixture
def full_sync(monkeypatch: pytest.MonkeyPatch) -> FullSync:
    double = FullSync()
    for name in LACKING:
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(fcntl, "fcntl", double.fcntl)
    monkeypatch.setattr(os, "fsync", double.fsync)
    return double


def test_a_broker_on_a_directory_keeps_what_it_acknowledged(full_sync: FullSync, tmp_path: Path) -> None:
    with FaultyBroker(tmp_path) as broker:
        deliver(idempotent_producer(broker), "payments", [b"before"])
        broker.kill()
        broker.restart()
        deliver(idempotent_producer(broker), "payments", [b"after"])
        assert [record.value for record in broker.log("payments")] == [b"before", b"after"]
    assert full_sync.calls > 0


def test_a_sync_empties_the_cache_of_the_drive_too(full_sync: FullSync, tmp_path: Path) -> None:
    """fsync does not, on macOS: it hands the bytes to the drive, which may hold them back."""
    files = DiskFiles(tmp_path)
    file = files.open("a", create=True)
    file.sync()
    files.sync_directory("")
    assert (full_sync.calls, full_sync.plain_syncs) == (2, 0)
    file.close()


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_that_gets_the_sync_it_has(full_sync: FullSync, tmp_path: Path, error: int) -> None:
    file = DiskFiles(tmp_path).open("a", create=True)
    full_sync.error = error
    file.sync()
    assert full_sync.plain_syncs == 1
    file.close()


def test_a_sync_that_failed_is_not_tried_another_way(full_sync: FullSync, tmp_path: Path) -> None:
    """The second one would succeed and mean nothing."""
    file = DiskFiles(tmp_path).open("a", create=True)
    full_sync.error = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    assert full_sync.plain_syncs == 0
    file.close()


def test_space_is_taken_by_writing_it_and_what_is_there_stays(full_sync: FullSync, tmp_path: Path) -> None:
    file = DiskFiles(tmp_path).open("a", create=True)
    file.write_at([b"12345"], 0)
    file.allocate(3_000_000)
    file.allocate(10)
    assert file.size() == 3_000_000
    assert file.read_at(8, 0) == b"12345\0\0\0"
    assert os.stat(tmp_path / "a").st_blocks * 512 >= 3_000_000
    file.close()


def test_linux_promises_everything() -> None:
    assert not_promised() == []


def test_serve_says_what_it_cannot_promise(tmp_path: Path) -> None:
    lacking = f"import os; [delattr(os, name) for name in {LACKING}]"
    serving = f"from semel.ui.cli import main; main(['serve', '--listen=127.0.0.1:0', {f'--data={tmp_path}'!r}])"
    double = f"import fcntl; fcntl.fcntl = lambda descriptor, command: {{{F_FULLFSYNC}: os.fsync}}[command](descriptor)"
    command = [sys.executable, "-c", f"{lacking}; {double}; {serving}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("semel ready on ")
        broker.send_signal(signal.SIGTERM)
        _, told = broker.communicate()
    assert broker.returncode == 0
    assert "a loss of power may take acknowledged records" in told
    assert "space for the journal cannot be reserved" in told
    assert "may hold up all other clients" in told
