"""The files of a log: a directory of the disk, files in memory or a double of them, and those that were put aside."""

from semel.log.storage import aside
from semel.log.storage.files import Buffer, DiskFiles, Files, MemoryFiles, ReadOnlyFiles, not_promised
