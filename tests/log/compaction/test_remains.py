"""What a pass must not leave behind, however often one is made: markers of nothing, files of nobody,
and records that were aborted.
"""

import errno
import os

import pytest
from histories import DIRECTORY, RETENTION_MS, History

from semel.log.compaction.keys import BYTES_PER_KEY
from semel.log.storage.files import File, MemoryFile, MemoryFiles
from semel.wire.records import Record


def test_the_marker_of_a_transaction_without_records_goes_though_its_producer_has_records_of_another() -> None:
    """A transactional producer that goes on for years would leave a marker for each of its transactions."""
    history = History()
    for key in (b"kept", b"superseded"):
        history.append([Record(key=key, value=b"1")], producer_id=7)
        history.end(7, True)
    history.append([Record(key=b"superseded", value=b"2")])
    history.roll()
    history.append([Record(key=b"c", value=b"3")])
    history.roll()
    history.clean()
    history.now_ms += RETENTION_MS
    history.clean(history.sealed[-1].next_offset)
    left = ["marker" if record.is_marker else record.key for record in history.records()]
    assert left == [b"kept", "marker", b"superseded", b"c"]


class FullFiles(MemoryFiles):
    """A disk that has no room for the end of a rewritten segment."""

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return FullFile(file.data) if path.endswith("-1.log") else file


class FullFile(MemoryFile):
    __slots__ = ()

    def sync(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_pass_that_breaks_off_leaves_no_file() -> None:
    """It would take the last room on a disk that is full."""
    history = History(FullFiles())
    for value in (b"1", b"2"):
        history.append([Record(key=b"a", value=value)])
    history.roll()
    before = history.files.names(DIRECTORY)
    with pytest.raises(OSError, match="No space"):
        history.clean()
    assert history.files.names(DIRECTORY) == before


def test_what_was_aborted_is_shown_to_nobody_after_a_pass_that_had_no_room_to_get_that_far() -> None:
    """The list of aborted transactions is forgotten up to the end of the segment, wherever in it the table was full."""
    history = History()
    for key in (b"a", b"a", b"b", b"c", b"d", b"e"):
        history.append([Record(key=key, value=b"1")])
    history.append([Record(key=b"aborted", value=b"1")], producer_id=7)
    history.end(7, committed=False)
    history.roll()
    done = history.clean(key_bytes=3 * BYTES_PER_KEY)
    assert done.until < 6
    assert history.aborted == []
    assert [record.key for record in history.committed()] == [b"a", b"b", b"c", b"d", b"e"]
