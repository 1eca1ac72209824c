"""What the tests of the faulty disk ask of a disk: what is on it, and what could be left of it."""

from semel.log.storage.files import Files
from semel.testing.faulty import FaultyFile, FaultyFiles


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
