"""A log that no broker runs on: for commands that show, check, repair or move one."""

from semel.log.replica.examination import ExaminedStore, examine_store, objects_of, slots_of
from semel.log.replica.move import Moved, move_from_store, move_to_store
from semel.log.replica.slot import Slot, entries
from semel.log.storage import aside, cache, journal
from semel.log.storage.cache import Cached, OwnLog
from semel.log.storage.encoding import SECRET_FIELDS, decode
from semel.log.storage.examination import Examined, StoredBatch, examine, segment_paths, walk_segment
from semel.log.storage.files import Buffer, DiskFiles, Files, MemoryFiles, ReadOnlyFiles, not_promised
from semel.log.storage.journal import Damaged, Lost, Misfit
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.repair import SettingAside
from semel.log.storage.segment import TOPICS

__all__ = [
    "SECRET_FIELDS",
    "TOPICS",
    "Buffer",
    "Cached",
    "Damaged",
    "DiskFiles",
    "Examined",
    "ExaminedStore",
    "Files",
    "Log",
    "Lost",
    "MemoryFiles",
    "Misfit",
    "Moved",
    "OwnLog",
    "PartitionLog",
    "ReadOnlyFiles",
    "SettingAside",
    "Slot",
    "StoredBatch",
    "aside",
    "cache",
    "decode",
    "entries",
    "examine",
    "examine_store",
    "journal",
    "move_from_store",
    "move_to_store",
    "not_promised",
    "objects_of",
    "segment_paths",
    "slots_of",
    "walk_segment",
]
