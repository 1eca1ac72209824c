"""What a start puts aside is there afterwards, whatever happens next: it may be the only copy of a record."""

import pytest

from semel.log.storage.aside import Aside, kept
from semel.testing.faulty import FaultyFiles

NOW = 1_764_000_000.0
PATH = "topics/1-payments/0/00000000000000000000.log"


def disk_with(content: bytes) -> FaultyFiles:
    """A file whose bytes and name are durable."""
    files = FaultyFiles()
    directory = PATH.rpartition("/")[0]
    files.make_directory(directory)
    file = files.open(PATH, create=True)
    file.write_at([content], 0)
    file.sync()
    file.close()
    while directory:
        files.sync_directory(directory)
        directory = directory.rpartition("/")[0]
    files.sync_directory("")
    return files


def contents(files: FaultyFiles) -> list[bytes]:
    """Those of all files that were put aside."""
    found = []
    for path, size in kept(files):
        file = files.open(path)
        found.append(file.read_at(size, 0))
        file.close()
    return sorted(found)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("how", ["move", "copy"])
def test_what_was_put_aside_survives_a_loss_of_power(how: str, seed: int) -> None:
    files = disk_with(b"a batch")
    aside = Aside(files, lambda: NOW)
    if how == "move":
        aside.move([PATH])
    else:
        aside.copy(PATH, 2)
    assert contents(files.survivors(seed)) == [b"a batch" if how == "move" else b"batch"]
