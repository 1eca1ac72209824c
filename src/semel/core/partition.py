"""One partition's state machine: where a batch goes, and what is known afterwards.

Whether a batch may be appended is decided in `core.batch_checks`. `apply_...` changes and never refuses. Between the
two the log makes the batch part of the journal. Recovery runs `apply_...` alone, on what the journal holds, and arrives
at the same state.

Offsets are dense: a batch of n records takes n of them. What lies behind `next_offset` does not exist, what lies below
`log_start` is gone. How far consumers may read is no rule but a matter of durability, so it is not kept here; how far
they may read at most if they want committed records only is one: up to `stable_offset`, where the oldest transaction
that is still open begins.

Whether a producer has a transaction open at all is the business of `core.transactions`. A partition knows of one from
its first batch here on, until a marker ends it.
"""

from typing import Final

from semel.core import refusals
from semel.core.aborted import AbortedTransactions
from semel.core.batch import APPEND_TIME_BIT, NO_PRODUCER, NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader
from semel.core.leader_epochs import LeaderEpochs
from semel.core.producers import Producers, advance

# After this long without a word a producer is forgotten: seven days. Apache Kafka does it after one, but a client may
# be cut off for a long weekend and send again what was acknowledged, and a state costs 350 bytes at most.
PRODUCER_EXPIRATION_MS: Final = 604_800_000


class Partition:
    """The state of one partition."""

    __slots__ = ("aborted", "epochs", "forgotten_below", "log_start", "next_offset", "open_transactions", "producers")

    def __init__(self, forgotten_below: int = 0) -> None:
        self.log_start = 0
        self.next_offset = 0
        self.producers = Producers()
        # The first offset of each open transaction, by producer id: in the order in which they began, so of offsets.
        self.open_transactions: dict[int, int] = {}
        self.aborted = AbortedTransactions()
        self.epochs = LeaderEpochs()
        # Producer ids below this one may have had state in an earlier topic of the same name.
        self.forgotten_below = forgotten_below

    @property
    def stable_offset(self) -> int:
        """No transaction reaches beyond this that could still be aborted."""
        for first_offset in self.open_transactions.values():
            return max(first_offset, self.log_start)
        return self.next_offset

    def check_append(self, header: BatchHeader) -> None:
        """ValueError for a batch whose place is taken, as only a damaged journal has one."""
        if header.base_offset < self.next_offset:
            raise ValueError(f"offset {header.base_offset} is taken, the log goes on at {self.next_offset}")

    def check_log_start(self, offset: int) -> None:
        """ValueError for a log start beyond the end of everything."""
        if offset > self.next_offset:
            raise ValueError(f"the log cannot begin at offset {offset}, it ends at {self.next_offset}")

    def apply_append(self, header: BatchHeader, at_ms: int) -> None:
        """A batch has become part of the log; its header carries the offset it took."""
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
        """A marker has become part of the log: the producer's transaction is over here, if there was one."""
        producer_id = header.producer_id
        self.next_offset = header.next_offset
        self.epochs.note(header.leader_epoch, header.base_offset)
        self.producers.note_marker(producer_id, at_ms, header.producer_epoch)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is not None and not committed:
            self.aborted.note(producer_id, first_offset, header.base_offset, self.stable_offset)

    def forget_silent(self, before_ms: int, at_most: int) -> int:
        """Forget some of the producers not heard since `before_ms` that have no transaction open; answer how many."""
        return self.producers.forget_silent(before_ms, at_most, self.open_transactions)

    def decide_log_start(self, offset: int, readable_until: int) -> int:
        """The log start that a request to delete what lies below `offset` (-1: all that can be read) would lead to."""
        wanted = readable_until if offset == -1 else offset
        if wanted < 0 or wanted > readable_until:
            raise refusals.Refused(
                refusals.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between {self.log_start} and {readable_until}"
            )
        return max(wanted, self.log_start)

    def apply_log_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        self.aborted.forget_below(self.log_start)


def answered_timestamp(header: BatchHeader) -> int:
    """The timestamp that a producer is told: the append time where the topic has it, else none."""
    return header.max_timestamp if header.attributes & APPEND_TIME_BIT else NO_TIMESTAMP
