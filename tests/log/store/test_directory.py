"""Holds what the engine of the directory promises besides: nothing half done, and no second sync after a failed one."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import pytest

from semel.log.store.contract import Changed, Exists, Missing, StoreRefused, Unsure
from semel.log.store.directory import ABANDONED_SECONDS, DirectoryStore


def objects(store: DirectoryStore) -> list[str]:
    return sorted(listed.key for page in store.list("") for listed in page)


class Disk:
    """Syncs, notes what was synced, and fails when it is told to."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.fails_in: str | None = None

    def __call__(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.fails_in is not None and self.fails_in in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.synced.append("new" if "/.new/" in path else Path(path).name)
        os.fsync(descriptor)


def test_body_and_name_are_synced_before_a_create_returns(tmp_path: Path) -> None:
    disk = Disk()
    store = DirectoryStore(tmp_path / "store", sync=disk)
    disk.synced.clear()
    store.create("journal/0", b"zero")
    assert disk.synced == ["new", "store", "journal"]
    disk.synced.clear()
    store.replace("journal/0", b"one", store.get("journal/0").version)
    assert disk.synced == ["new", "journal"]


def test_an_object_that_was_deleted_does_not_come_back_after_a_loss_of_power(tmp_path: Path) -> None:
    """A slot of long ago would lie behind a later fence."""
    disk = Disk()
    store = DirectoryStore(tmp_path, sync=disk)
    store.create("journal/0", b"zero")
    disk.synced.clear()
    store.delete("journal/0")
    assert disk.synced == ["journal"]


def test_what_a_refused_creator_reads_is_durable(tmp_path: Path) -> None:
    """The creator that was faster may not have synced the folder yet."""
    disk = Disk()
    store = DirectoryStore(tmp_path, sync=disk)
    store.create("floor", b"zero")
    disk.synced.clear()
    with pytest.raises(Exists):
        store.create("floor", b"zero")
    assert disk.synced == ["new", tmp_path.name]
    disk.synced.clear()
    with pytest.raises(Changed):
        store.replace("floor", b"one", "another version")
    assert disk.synced == ["new", tmp_path.name]


def test_after_a_sync_of_a_name_has_failed_nothing_is_promised_any_more(tmp_path: Path) -> None:
    """A second sync would succeed, and mean nothing."""
    disk = Disk()
    store = DirectoryStore(tmp_path, sync=disk)
    store.create("journal/0", b"zero")
    disk.fails_in = "/journal"
    with pytest.raises(Unsure, match="Input/output error"):
        store.create("journal/1", b"one")
    disk.fails_in = None
    for call in (lambda: store.create("journal/1", b"one"), lambda: store.get("journal/1"), lambda: objects(store)):
        with pytest.raises(StoreRefused, match="a sync of its directory has failed"):
            call()


def test_a_body_that_could_not_be_synced_gets_no_name_and_may_be_sent_again(tmp_path: Path) -> None:
    disk = Disk()
    store = DirectoryStore(tmp_path, sync=disk)
    disk.fails_in = "/.new/"
    with pytest.raises(Unsure, match="Input/output error"):
        store.create("floor", b"zero")
    assert objects(store) == []
    assert os.listdir(tmp_path / ".new") == []
    disk.fails_in = None
    store.create("floor", b"zero")
    assert objects(store) == ["floor"]


def test_what_a_crash_has_left_is_never_an_object_and_goes_after_a_day(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.create("floor", b"zero")
    left = tmp_path / ".new" / "left-by-a-crash"
    left.write_bytes(b"ha")
    turn = tmp_path / ".turns" / "floor" / "left-by-a-crash"
    turn.mkdir(parents=True)
    (turn / "body").write_bytes(b"one")
    assert objects(store) == ["floor"]
    written = left.stat().st_mtime
    DirectoryStore(tmp_path, now=lambda: written + ABANDONED_SECONDS)
    assert left.exists()
    DirectoryStore(tmp_path, now=lambda: written + ABANDONED_SECONDS + 1)
    assert not left.exists()
    assert store.get("floor").body == b"zero"


def test_a_file_that_a_process_with_another_clock_has_removed_may_be_sent_again(tmp_path: Path) -> None:
    """Two machines share the directory, and one of them starts in another year."""
    is_other_year = False

    def sync(_: int) -> None:
        if is_other_year:
            DirectoryStore(tmp_path, now=lambda: time.time() + 10 * ABANDONED_SECONDS)

    store = DirectoryStore(tmp_path, sync=sync)
    version = store.create("floor", b"zero")
    is_other_year = True
    with pytest.raises(Unsure, match="compare the clocks of all machines"):
        store.create("journal/0", b"zero")
    with pytest.raises(Unsure, match="compare the clocks of all machines"):
        store.replace("floor", b"one", version)
    is_other_year = False
    store.create("journal/0", b"zero")
    store.replace("floor", b"one", version)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    store = DirectoryStore(tmp_path)
    monkeypatch.setattr(os, "link", link)
    for key in ("floor", "journal/0"):
        with pytest.raises(StoreRefused, match="a file system without hard links"):
            store.create(key, b"zero")
    assert not list((tmp_path / ".new").iterdir())


def test_a_directory_that_cannot_be_one_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreRefused, match=re.escape(str(path)) + ": .*: make it a directory that") as refusal:
            DirectoryStore(path)
        assert "\n" not in str(refusal.value)


def test_an_object_whose_folder_is_an_object_is_refused(tmp_path: Path) -> None:
    """The contract has no such keys, and this engine cannot hold them."""
    store = DirectoryStore(tmp_path)
    store.create("floor", b"zero")
    with pytest.raises(StoreRefused):
        store.create("floor/0", b"zero")
    with pytest.raises(Missing):
        store.get("floor/0")


@pytest.mark.parametrize("what", ["a directory", "a dead link"])
def test_what_is_no_object_in_the_place_of_one_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    """Who reads the lease there finds none, and who creates one is told that there is one: a start took for ever."""
    place = tmp_path / "lease"
    place.mkdir() if what == "a directory" else place.symlink_to(tmp_path / "nowhere")
    store = DirectoryStore(tmp_path)
    with pytest.raises(Missing):
        store.get("lease")
    with pytest.raises(StoreRefused, match=f"^{re.escape(str(place))}: not a file, .*: remove it$"):
        store.create("lease", b"mine")
