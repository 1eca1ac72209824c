"""A start that is cut off, by a loss of power or by a full disk, does not stand in the way of the next one."""

import pytest

from semel.storage.log import Log
from semel.storage.log_settings import LogSettings
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
