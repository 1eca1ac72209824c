"""The state machine of one partition: its offsets, its producers, and its open and aborted transactions.

`core.batch_checks` decides whether a batch may be appended; then the log writes the batch to the journal, and then
`apply_...` changes the state and never refuses. Recovery runs only `apply_...`, on the entries of the journal, and
arrives at the same state.

Offsets are dense: a batch of n records takes n offsets. Records from `next_offset` on do not exist yet, and records
below `log_start` are deleted. The high watermark depends on what is durable, so it is kept elsewhere. The last stable
offset (`stable_offset`) follows from the open transactions: it is where the oldest of them begins.

`core.transactions` knows whether a producer has a transaction open at all. A partition knows about a transaction from
its first batch in the partition until its marker.
"""

from typing import Final

from semel.log.core.aborted import AbortedTransactions
from semel.log.core.leader_epochs import LeaderEpochs
from semel.log.core.producer_table import TABLE_BOUNDS, Producers, TableBounds
from semel.wire import refusals
from semel.wire.batch import APPEND_TIME_BIT, NO_PRODUCER, NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader
from semel.wire.sequences import advance

# The broker forgets a producer that was silent for this long: seven days. Apache Kafka forgets it after one day. But a
# client may be cut off for a long weekend and then send an acknowledged batch again, and a producer's state takes 100
# bytes.
PRODUCER_EXPIRATION_MS: Final = 604_800_000


class Partition:
    """The state of one partition."""

    __slots__ = ("aborted", "epochs", "lenient_blocks", "log_start", "next_offset", "open_transactions", "producers")

    def __init__(self, lenient_blocks: int = 0, producer_bounds: TableBounds = TABLE_BOUNDS) -> None:
        self.log_start = 0
        self.next_offset = 0
        self.producers = Producers(producer_bounds)
        # The first offset of each open transaction, by producer id: in the order in which they began, which is by
        # offset.
        self.open_transactions: dict[int, int] = {}
        self.aborted = AbortedTransactions()
        self.epochs = LeaderEpochs()
        # Producer ids from blocks up to this number may have had state in an earlier topic of the same name.
        self.lenient_blocks = lenient_blocks

    @property
    def stable_offset(self) -> int:
        """The last stable offset: no open transaction has a record below it."""
        for first_offset in self.open_transactions.values():
            return max(first_offset, self.log_start)
        return self.next_offset

    def check_append(self, header: BatchHeader) -> None:
        """ValueError for a batch whose offset is taken already; the journal is damaged."""
        if header.base_offset < self.next_offset:
            raise ValueError(f"offset {header.base_offset} is taken, the log goes on at {self.next_offset}")

    def check_log_start(self, offset: int) -> None:
        """ValueError for a log start beyond the end of the log."""
        if offset > self.next_offset:
            raise ValueError(f"the log cannot begin at offset {offset}, it ends at {self.next_offset}")

    def apply_append(self, header: BatchHeader, at_ms: int) -> None:
        """A batch was appended; its header has its base offset."""
        self.next_offset = header.next_offset
        if header.leader_epoch != self.epochs.last:
            self.epochs.note(header.leader_epoch, header.base_offset)
        if header.producer_id != NO_PRODUCER:
            count = header.record_count
            self.producers.note(
                header.producer_id,
                at_ms,
                header.producer_epoch,
                advance(header.base_sequence, count - 1),
                count,
                header.base_offset,
                answered_timestamp(header),
            )

        if header.attributes & TRANSACTIONAL_BIT:
            self.open_transactions.setdefault(header.producer_id, header.base_offset)

    def apply_marker(self, header: BatchHeader, at_ms: int, committed: bool) -> None:
        """A marker was appended: it ends the producer's transaction in this partition, if there is one."""
        producer_id = header.producer_id
        self.next_offset = header.next_offset
        self.epochs.note(header.leader_epoch, header.base_offset)
        self.producers.note_marker(producer_id, at_ms, header.producer_epoch)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is not None and not committed:
            self.aborted.note(producer_id, first_offset, header.base_offset, self.stable_offset)

    def forget_silent(self, before_ms: int, at_most: int) -> int:
        """Forget some producers that were last heard before `before_ms` and have no open transaction; return
        how many.
        """
        return self.producers.forget_silent(before_ms, at_most, self.open_transactions)

    def decide_log_start(self, offset: int, readable_until: int) -> int:
        """The log start after a request to delete the records below `offset` (-1: all records that can be read)."""
        log_start = readable_until if offset == -1 else offset
        if log_start < 0 or log_start > readable_until:
            raise refusals.Refused(
                refusals.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between {self.log_start} and {readable_until}"
            )
        return max(log_start, self.log_start)

    def apply_log_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        self.aborted.forget_below(self.log_start)


def answered_timestamp(header: BatchHeader) -> int:
    """The timestamp in the answer to the producer: the append time if the topic uses it, otherwise none."""
    return header.max_timestamp if header.attributes & APPEND_TIME_BIT else NO_TIMESTAMP
