"""The planted bugs of the list of aborted transactions: what a reader must leave out, and nothing else."""

from typing import Final

from saboteurs.planting import Bug

ABORTED_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "an aborted transaction that began before the fetch is not named",
        "semel.log.core.aborted:AbortedTransactions.between",
        "pairs if max(first_offsets) < end else [pair for pair in pairs if pair[1] < end]",
        "[pair for pair in pairs if begin <= pair[1] < end]",
        ("tests/log/core/test_partition_transactions.py",),
    ),
    Bug(
        "the search for aborted transactions breaks off one too early",
        "semel.log.core.aborted:AbortedTransactions._reaching",
        "bisect_left(columns[3], end) + 1",
        "bisect_left(columns[3], end)",
        ("tests/log/core/test_partition_transactions.py",),
    ),
    Bug(
        "the search for blocks of aborted transactions breaks off where the first one ends after the stretch",
        "semel.log.core.aborted:AbortedTransactions.blocks_between",
        "blocks[at + 2] >= end",
        "blocks[at] >= end",
        ("tests/log/core/test_partition_transactions.py",),
    ),
    Bug(
        "a transaction whose marker compaction has removed is named, because it stands in a block with others",
        "semel.log.core.aborted:AbortedTransactions._reaching",
        "begin = max(begin, self._floor)",
        "pass",
        ("tests/log/core/test_partition_transactions.py",),
    ),
    Bug(
        "a checkpoint leaves out a file of blocks that is not full, because none of its blocks is current",
        "semel.log.storage.aborted_blocks:AbortedBlocks.files",
        "-(-aborted.next_block // per_file)",
        "-(-aborted.next_block // per_file) if aborted.block_count else first",
        ("tests/log/storage/test_aborted_blocks.py",),
    ),
    Bug(
        "a checkpoint forgets the number of the next block when there is no block",
        "semel.log.core.aborted:AbortedTransactions.to_bytes",
        '_BLOCKS_HEAD.pack(self._floor, self.first_block) + self._blocks.tobytes() if self.next_block else b""',
        '_BLOCKS_HEAD.pack(self._floor, self.first_block) + self._blocks.tobytes() if self._blocks else b""',
        ("tests/log/storage/test_aborted_blocks.py",),
    ),
    Bug(
        "a checkpoint names blocks of aborted transactions that were not synced",
        "semel.log.storage.segment_files:SegmentFiles.write_beside",
        "self.dirty.add(path)",
        "pass",
        ("tests/crash/test_matrix.py", "-k", "transactions"),
    ),
    Bug(
        "a checkpoint forgets the blocks of aborted transactions",
        "semel.log.storage.checkpoint:restore_state",
        "AbortedTransactions.from_bytes(parts.aborted, parts.aborted_blocks)",
        "AbortedTransactions.from_bytes(parts.aborted)",
        ("tests/log/storage/test_log_transactions.py",),
    ),
    Bug(
        "a file of aborted transactions goes that the next block is written to",
        "semel.log.storage.aborted_blocks:AbortedBlocks.freed",
        "self._state.aborted.first_block // per_file",
        "-(-self._state.aborted.first_block // per_file)",
        ("tests/log/storage/test_aborted_blocks.py",),
    ),
    Bug(
        "a block of aborted transactions is believed whatever is in it",
        "semel.log.storage.aborted_blocks:AbortedBlocks._read",
        "not _is_block(number, block)",
        "False",
        ("tests/log/storage/test_aborted_blocks.py",),
    ),
    Bug(
        "a fetch names no aborted transaction",
        "semel.log.broker.apis.harvest:_read",
        "partition.aborted.between(item.fetch_offset, next_offset)",
        "()",
        ("tests/log/broker/apis/test_isolation.py",),
    ),
    Bug(
        "a log start that moves brings back transactions whose markers compaction has removed",
        "semel.log.core.aborted:AbortedTransactions.forget_below",
        "max(self._floor, offset)",
        "offset",
        ("tests/log/core/test_partition_transactions.py", "-k", "compaction_has_removed"),
    ),
    Bug(
        "tail and the console leave out what a producer wrote beside its aborted transaction",
        "semel.client.aborted:_judged",
        "header.is_transactional and not header.is_control and is_aborting",
        "not header.is_control and is_aborting",
        ("tests/client/test_columns.py", "-k", "looks_at_each_batch"),
    ),
)
