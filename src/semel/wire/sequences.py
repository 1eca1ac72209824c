"""The verdict on a batch of an idempotent producer: is it new, is it a duplicate, or must it not be written?

Theory of operation
-------------------
A producer gets an id and counts the records it sends to each partition: every batch carries (id, epoch, sequence number
of its first record). If an answer is lost, the producer sends the same batch again with the same numbers. So the
numbers are a *claim*, and for each producer id the partition keeps what it needs to judge the next claim: the
producer's epoch and its last five batches (a client has at most five batches in flight, so it never repeats an older
one).

A claim has one of these outcomes, and the partition writes something only for the first:

    ACCEPTED    the next number: the batch is appended, and with it the claim, in one journal entry
    DUPLICATE   one of the last five batches again, number for number: the client gets the first answer again
    GAP         any other number: a batch in between was lost or is late. A hard error, for this and every later
                number until the missing one comes, or until the producer starts again with a new epoch or id
    FENCED      an older epoch: the sender is a zombie whose successor is already at work

The outcome follows from the sender's standing (its epoch compared with the one on record) and from the number that it
claims. The table `VERDICTS` below is the whole rule. Three points deserve care:

* A repetition must match an old batch exactly, in first *and* last number. A batch that overlaps one is no repetition:
  part of it was never written, so answering "done" would lose records.
* Numbers run from 0 to 2^31 - 1 and then start again at 0; a batch may itself straddle the wrap. All arithmetic here is
  modulo 2^31 and no code compares sequence numbers by size.
* A producer unknown in this partition is either new, and then its first number is 0, or forgotten (its state expired,
  or the topic was deleted and recreated), and then any number must be accepted. Apache Kafka cannot tell these apart
  and accepts any number; so if the first of several batches in flight fails and the second arrives, Kafka accepts the
  second, and the first is lost or reordered. Here `core.producer_ids` knows the age of every id, and an id that is too
  young to have been forgotten must start at 0.

The state of one producer in one partition is an immutable `bytes` value of a few packed fields. It takes a fifth of the
memory of the same numbers as Python objects, and a checkpoint keeps it without copying. `core.producer_table` holds the
states of all producers of a partition.

    8 bytes   when the producer was last heard, milliseconds (decides expiry)
    2         epoch; less 2^15 where a marker is all that was ever on record
    24 each   up to five batches, oldest first: last sequence, record count, base offset, timestamp that was answered

`judge` and `note` take the same time however many records or producers there are.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

WINDOW_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFF_FFFF

_HEAD: Final = struct.Struct("<qh")
_TIME: Final = struct.Struct("<q")
BATCH: Final = struct.Struct("<IIqq")
# Subtracted from the epoch in a state whose only event was a marker.
_BARE_EPOCHS: Final = 1 << 15
# The first fields of `BATCH`: the numbers that the batch claimed.
_CLAIM: Final = struct.Struct("<II")
HEAD_BYTES: Final = _HEAD.size
_BATCH_BYTES: Final = BATCH.size
# A state of this many bytes has a full window: the next batch replaces the oldest one.
_FULL_BYTES: Final = HEAD_BYTES + WINDOW_BATCHES * _BATCH_BYTES


class Outcome(IntEnum):
    """The verdict on a claim."""

    ACCEPTED = 0
    DUPLICATE = 1
    GAP = 2
    FENCED = 3


class Standing(IntEnum):
    """How the sender's epoch compares with what is on record for its producer id in this partition."""

    NEW = 0  # nothing on record, and nothing can have been forgotten
    FORGOTTEN = 1  # nothing on record, but a state may have been forgotten
    CURRENT = 2  # the epoch on record
    SUCCESSOR = 3  # a later epoch
    ZOMBIE = 4  # an earlier epoch


class Number(IntEnum):
    """The number that a batch claims, if it does not repeat a known batch."""

    NEXT = 0  # right after the last one, or 0 where no number of this epoch is on record
    OTHER = 1


# Short names, because `Outcome.ACCEPTED` and the like cost more time than the rest of a verdict.
ACCEPTED, DUPLICATE, GAP, FENCED = Outcome
NEW, FORGOTTEN, CURRENT, SUCCESSOR, ZOMBIE = Standing
NEXT, OTHER = Number

# The verdict on a claim. Only a sender in its current epoch can repeat itself, and a repetition is a DUPLICATE.
VERDICTS: Final[tuple[tuple[Outcome, Outcome], ...]] = (
    # NEXT      OTHER
    (ACCEPTED,  GAP),       # NEW
    (ACCEPTED,  ACCEPTED),  # FORGOTTEN
    (ACCEPTED,  GAP),       # CURRENT
    (ACCEPTED,  GAP),       # SUCCESSOR
    (FENCED,    FENCED),    # ZOMBIE
)  # fmt: skip


class KnownBatch(NamedTuple):
    """A batch in the window: the numbers it claimed, its offset, and the timestamp in the answer to its sender."""

    last_sequence: int
    record_count: int
    base_offset: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return advance(self.last_sequence, 1 - self.record_count)


class Judgement(NamedTuple):
    """The outcome for one batch. A duplicate comes with the original.

    `expected` is what would have been accepted: the sequence number in case of a gap, the epoch in case of a zombie.
    """

    outcome: Outcome
    original: KnownBatch | None = None
    expected: int = 0


_ACCEPTED: Final = Judgement(Outcome.ACCEPTED)

RUN_RECORDS_MAX: Final = 1 << 30
"""The longest run: half of all sequence numbers, so that the other half always lies ahead of it."""


def advance(sequence: int, count: int) -> int:
    """The sequence number plus `count`, where 2^31 - 1 is followed by 0."""
    return (sequence + count) & SEQUENCE_MASK


def judge(state: bytes | None, is_new: bool, epoch: int, first_sequence: int, record_count: int) -> Judgement:
    """The verdict on a batch that claims, in `epoch`, `record_count` numbers from `first_sequence` on.

    `state` is what is on record for its producer id in this partition; None if nothing is. In that case `is_new` says
    whether the producer is certainly new, and not forgotten.
    """
    expected = next_sequence = 0
    if state is None:
        standing = NEW if is_new else FORGOTTEN
    else:
        known_epoch = epoch_of(state)
        if epoch == known_epoch:
            standing = CURRENT
            if len(state) > HEAD_BYTES:
                last_sequence = BATCH.unpack_from(state, len(state) - _BATCH_BYTES)[0]
                expected = next_sequence = (last_sequence + 1) & SEQUENCE_MASK
            original = find_repeated(state, first_sequence, record_count)
            if original is not None:
                return Judgement(DUPLICATE, original)
        else:
            standing = SUCCESSOR if epoch > known_epoch else ZOMBIE
            expected = 0 if standing is SUCCESSOR else known_epoch
    outcome = VERDICTS[standing][NEXT if first_sequence == next_sequence else OTHER]
    return _ACCEPTED if outcome is ACCEPTED else Judgement(outcome, None, expected)


def find_repeated(state: bytes, first_sequence: int, record_count: int) -> KnownBatch | None:
    """The batch in the window that claimed exactly these numbers; the latest if there are two."""
    last_sequence = (first_sequence + record_count - 1) & SEQUENCE_MASK
    claim = _CLAIM.pack(last_sequence, record_count)
    if claim not in state:
        # This is nearly always the case, and takes a fraction of the time of the loop.
        return None
    for position in range(len(state) - _BATCH_BYTES, 0, -_BATCH_BYTES):
        if state.startswith(claim, position):
            return KnownBatch._make(BATCH.unpack_from(state, position))
    return None


def note(
    state: bytes | None,
    now_ms: int,
    epoch: int,
    last_sequence: int,
    record_count: int,
    base_offset: int,
    timestamp_ms: int,
) -> bytes:
    """The state after a batch was accepted. A later epoch empties the window; a full window loses its oldest batch."""
    head = _HEAD.pack(now_ms, epoch)
    batch = BATCH.pack(last_sequence, record_count, base_offset, timestamp_ms)
    if state is None or epoch_of(state) != epoch:
        return head + batch
    kept_from = HEAD_BYTES + _BATCH_BYTES if len(state) == _FULL_BYTES else HEAD_BYTES
    return head + state[kept_from:] + batch


def note_marker(state: bytes | None, now_ms: int, epoch: int) -> bytes:
    """The state after a marker of `epoch`, which claims no number. A later epoch empties the window, so that the next
    number must be 0, and late batches of earlier epochs are fenced. If the producer was not on record, the new state
    has no number.
    """
    if state is None:
        return _HEAD.pack(now_ms, epoch - _BARE_EPOCHS)
    if epoch > epoch_of(state):
        return _HEAD.pack(now_ms, epoch)
    return _TIME.pack(now_ms) + state[_TIME.size :]


def judge_run(
    state: bytes | None, is_new: bool, epoch: int, first_sequence: int, record_count: int
) -> tuple[int, Judgement]:
    """The verdict on the first of these consecutive records, and for how many of them it is the same.

    This is for records that were read from a log and are no longer in their original batches: a repetition may begin at
    any record, so each record is a claim of its own. `state` was made by `note_run`: one run of all numbers that were
    accepted in its epoch.
    """
    if state is None:
        standing, expected, known_count = (NEW if is_new else FORGOTTEN), 0, 0
    elif epoch != epoch_of(state):
        standing, known_count = (SUCCESSOR if epoch > epoch_of(state) else ZOMBIE), 0
        expected = 0 if standing is SUCCESSOR else epoch_of(state)
    else:
        last_sequence, known_count = _CLAIM.unpack_from(state, len(state) - _BATCH_BYTES)
        standing, expected = CURRENT, advance(last_sequence, 1)
    if standing is FORGOTTEN or standing is ZOMBIE:
        return record_count, Judgement(VERDICTS[standing][OTHER], None, expected)
    distance = (expected - first_sequence) & SEQUENCE_MASK
    if distance == 0:
        return record_count, Judgement(VERDICTS[standing][NEXT], None, expected)
    if distance <= known_count:
        return min(record_count, distance), Judgement(DUPLICATE, None, expected)
    # Neither known nor next: the verdict holds up to where the known numbers begin, which end before the next number.
    return min(record_count, distance - known_count), Judgement(VERDICTS[standing][OTHER], None, expected)


def note_run(state: bytes | None, now_ms: int, epoch: int, last_sequence: int, record_count: int) -> bytes:
    """The state after records that `judge_run` accepted: the run of their epoch, extended by them.

    Only the next number is ever accepted, so all numbers accepted in an epoch are consecutive, and one run holds them.
    A later epoch starts a new run.
    """
    if state is not None and epoch_of(state) == epoch:
        record_count += _CLAIM.unpack_from(state, len(state) - _BATCH_BYTES)[1]
    return note(None, now_ms, epoch, last_sequence, min(record_count, RUN_RECORDS_MAX), 0, -1)


def epoch_of(state: bytes) -> int:
    return state[8] | (state[9] & 0x7F) << 8


def is_bare(state: bytes) -> bool:
    """Whether only a marker was ever on record. The broker may have forgotten the batches before the marker."""
    return state[9] >> 7 == 1


def next_of(state: bytes) -> int:
    """The number after the last one on record. The state must have a batch or a run."""
    last_sequence: int = _CLAIM.unpack_from(state, len(state) - _BATCH_BYTES)[0]
    return advance(last_sequence, 1)


def last_heard_ms(state: bytes) -> int:
    return int.from_bytes(state[:8], "little", signed=True)


def window_of(state: bytes) -> list[KnownBatch]:
    """The batches in the window, oldest first."""
    return [KnownBatch._make(fields) for fields in BATCH.iter_unpack(state[HEAD_BYTES:])]
