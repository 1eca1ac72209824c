"""The settings of the log, with their defaults. What each means for an operator stands in `broker.limits`."""

from semel.log.core.access import RULES_MAX
from semel.log.core.groups.groups import GROUP_NAME_BYTES_MAX, GROUP_OFFSETS_MAX, GROUPS_MAX, TRANSACTION_OFFSETS_MAX
from semel.log.core.partition import PRODUCER_EXPIRATION_MS
from semel.log.core.producer_table import TABLE_BOUNDS, TableBounds
from semel.log.core.shares import PRODUCER_STATES_MAX
from semel.log.core.topics import PARTITIONS_MAX, TOPICS_MAX
from semel.log.core.transaction_rules import TRANSACTION_BOUNDS, TransactionBounds
from semel.log.core.values import value
from semel.log.storage import journal
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT, BlockLayout
from semel.log.storage.producer_pages import INLINE_BYTES_MAX
from semel.log.storage.segment_files import OPEN_SEGMENTS_MAX
from semel.log.storage.verification import VERIFIED_BYTES_MAX


@value
class LogSettings:
    """The settings of the log; every number except those of blocks may change between two starts."""

    journal_file_bytes: int = journal.FILE_BYTES
    # A checkpoint is due when the journal has grown by this much, so recovery does not have to replay much more. It is
    # small so that the recycled files of the journal stay in the page cache, where writes are cheap.
    checkpoint_bytes: int = 64 * 1024 * 1024
    aborted_blocks: BlockLayout = BLOCK_LAYOUT
    producer_bounds: TableBounds = TABLE_BOUNDS
    # A checkpoint with more than this many bytes of pages of producers keeps them in files of their own.
    pages_inline_bytes_max: int = INLINE_BYTES_MAX
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    producer_states_max: int = PRODUCER_STATES_MAX
    topics_max: int = TOPICS_MAX
    partitions_max: int = PARTITIONS_MAX
    groups_max: int = GROUPS_MAX
    group_name_bytes_max: int = GROUP_NAME_BYTES_MAX
    group_offsets_max: int = GROUP_OFFSETS_MAX
    transaction_offsets_max: int = TRANSACTION_OFFSETS_MAX
    transactions: TransactionBounds = TRANSACTION_BOUNDS
    access_rules_max: int = RULES_MAX
    # Whether the broker acknowledges records, and lets them be read, before they are on disk (`--durability os`).
    acknowledges_unsynced: bool = False
    open_segments_max: int = OPEN_SEGMENTS_MAX
    # A start reads this much of the segments again, to compare it with the checkpoint.
    verified_bytes_max: int = VERIFIED_BYTES_MAX
