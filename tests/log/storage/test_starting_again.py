"""A start that is cut off, by a loss of power or by a full disk, does not stand in the way of the next one; nor does
what others put into the directory. And no start removes the only copy of a record.
"""

from pathlib import Path

import pytest

from ledger import Caller, Ledger, batch
from semel.log.storage import checkpoint, end_notes, journal
from semel.log.storage.files import DiskFiles, MemoryFiles
from semel.log.storage.journal import Damaged
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.testing.faulty import Fault, FaultyFiles, keep_all

SETTINGS = LogSettings(journal_file_bytes=16384)


def start(files: FaultyFiles) -> Log:
    return Log.open(files, new_cluster_id="cluster", settings=SETTINGS)


def used_disk() -> FaultyFiles:
    """A disk on which a log was used, then killed before it could stop in order."""
    files = FaultyFiles()
    log = start(files)
    log.new_producer_id(0)
    log.sync_now()
    return files.survivors(keep_all)


@pytest.mark.parametrize("seed", range(40))
def test_a_loss_of_power_right_after_a_start_leaves_a_log_that_starts(seed: int) -> None:
    files = used_disk()
    start(files)
    start(files.survivors(seed))


def test_a_start_on_a_full_disk_that_fails_leaves_a_log_that_starts_once_there_is_space() -> None:
    files = used_disk()
    start(files)
    files = files.survivors(keep_all, Fault("ENOSPC", call="allocate", path="journal/*"))
    with pytest.raises(OSError, match="No space"):
        start(files)
    assert files.fired["ENOSPC"] == 1
    start(files.after_kill())


def log_with_a_record(root: Path) -> Ledger:
    caller = Caller(DiskFiles(root), Ledger())
    topic = caller.create("orders")
    assert topic is not None
    caller.append(caller.log.state.partitions.of(topic)[0], batch())
    caller.close()
    return caller.ledger


CHECKPOINT_ALONE = (checkpoint.NAME,)
WITH_JOURNAL = (checkpoint.NAME, journal.DIRECTORY)
WITH_NOTE = (checkpoint.NAME, end_notes.NAME)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (CHECKPOINT_ALONE, "checkpoint: missing, though a log was kept here"),
        (WITH_JOURNAL, "checkpoint: missing, though a log was kept here"),
        (WITH_NOTE, "a journal without a checkpoint"),
        ((*WITH_NOTE, journal.DIRECTORY), "records without a checkpoint"),
    ],
)
def test_records_whose_checkpoint_is_gone_are_not_removed(tmp_path: Path, gone: tuple[str, ...], said: str) -> None:
    """Somebody has removed the checkpoint and more, or has brought back only a part of a backup."""
    caller = Caller(DiskFiles(tmp_path / "log"), Ledger())
    ledger = caller.ledger
    topic = caller.create("orders")
    assert topic is not None
    caller.append(caller.log.state.partitions.of(topic)[0], batch())
    caller.sync()
    caller.log.abandon()
    root = (tmp_path / "log").rename(tmp_path / "moved")
    for name in gone:
        (root / name).rename(tmp_path / name)
    with pytest.raises(Damaged, match=said):
        Caller(DiskFiles(root), ledger)
    for name in gone:
        (tmp_path / name).rename(root / name)
    again = Caller(DiskFiles(root), ledger)
    ledger.settle_on(again.log)
    again.close()


@pytest.mark.parametrize("place", ["topics", "topics/0-orders", "topics/0-orders/0", "topics/1-gone/0", "journal", "."])
@pytest.mark.parametrize("is_directory", [True, False])
def test_what_others_put_into_the_directory_stays_there_and_is_in_nobodys_way(
    tmp_path: Path, place: str, is_directory: bool
) -> None:
    """The desktops of some machines leave a file wherever somebody has looked, and people leave copies."""
    ledger = log_with_a_record(tmp_path)
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    left = tmp_path / place / ".DS_Store"
    left.mkdir() if is_directory else left.touch()
    again = Caller(DiskFiles(tmp_path), ledger)
    ledger.settle_on(again.log)
    again.close()
    assert left.exists()


def test_the_end_note_of_another_brokers_log_is_refused() -> None:
    """It says how far another journal went."""
    files = []
    for cluster in ("ours", "theirs"):
        files.append(MemoryFiles())
        Log.open(files[-1], new_cluster_id=cluster, settings=SETTINGS).close()
    ours, theirs = (each.open(end_notes.NAME) for each in files)
    ours.write_at([theirs.read_at(theirs.size(), 0)], 0)
    with pytest.raises(Damaged, match="names another cluster than the checkpoint"):
        Log.open(files[0], new_cluster_id=None, settings=SETTINGS)


def test_a_journal_that_somebody_cut_is_missed_though_nothing_in_it_was_durable_yet() -> None:
    """With --durability os that was acknowledged, and a machine that ran on has lost none of it."""
    files = MemoryFiles()
    log = Log.open(files, new_cluster_id="ours", settings=SETTINGS)
    log.new_producer_id(0)
    log.abandon()
    newest = max(name for name in files.names("journal") if not name.startswith("spare-"))
    files.open(f"journal/{newest}").truncate(0)
    with pytest.raises(Damaged, match=f"{newest}: cut to 0 bytes, was made with 16384"):
        Log.open(files, new_cluster_id=None, settings=SETTINGS)


@pytest.mark.parametrize("place", ["topics/0-orders", "topics/0-orders/0"])
def test_a_topic_that_lies_on_another_disk_can_be_deleted(tmp_path: Path, place: str) -> None:
    ledger = log_with_a_record(tmp_path / "log")
    (tmp_path / "log" / place).rename(tmp_path / "another")
    (tmp_path / "log" / place).symlink_to(tmp_path / "another")
    again = Caller(DiskFiles(tmp_path / "log"), ledger)
    ledger.settle_on(again.log)
    again.delete("orders")
    again.close()
    assert list((tmp_path / "another").rglob("*.log")) == []
    again = Caller(DiskFiles(tmp_path / "log"), ledger)
    ledger.settle_on(again.log)
    again.close()
