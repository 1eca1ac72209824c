"""The log of a data directory on which no broker runs: for commands that show, check or repair it, and for the lab."""

from semel.log.core.batch_checks import Sender, check_sent
from semel.log.core.entries import BatchAppended, Entry, TopicCreated
from semel.log.core.topics import Catalog, Topic
from semel.log.storage import cache, journal
from semel.log.storage.cache import Cached, OwnLog
from semel.log.storage.encoding import SECRET_FIELDS, decode
from semel.log.storage.examination import Examined, StoredBatch, examine, segment_paths, walk_segment
from semel.log.storage.journal import Damaged, Lost, Misfit, StillInJournal
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.remedy import mend
from semel.log.storage.segment import TOPICS
