"""Which batches of an idempotent producer are new, which are repetitions, and which must not be written.

Theory of operation
-------------------
A producer gets an id and counts the records it sends to each partition: every batch carries (id, epoch, sequence of its
first record). When an answer is lost the producer sends the same batch again, with the same numbers. So the numbers are
a *claim*, and the partition keeps, for each producer id, just enough to judge the next one: its epoch, and its last
five batches (a client keeps at most five in flight, so nothing older can honestly be repeated).

A claim has one of these outcomes, and only the first one writes anything:

    ACCEPTED    the next number: the batch is appended, and with it the claim, in one journal entry
    DUPLICATE   one of the last five batches again, number for number: the answer is what was answered the first time
    GAP         any other number: something between was lost or is late. A hard error, for this and every later number
                until the missing one comes, or until the producer starts again with a new epoch or id
    FENCED      an older epoch: the sender is a zombie whose successor is already at work

What decides is where the sender stands (its epoch against the one on record) and which number it claims; the whole rule
is the table `VERDICTS` below. Three points deserve care:

* A repetition must match an old batch exactly, in first *and* last number. A batch that overlaps one is no repetition:
  part of it was never written, so answering "done" would lose records.
* Numbers run from 0 to 2^31 - 1 and then start again at 0; a batch may itself straddle the wrap. All arithmetic here is
  modulo 2^31 and no code compares sequence numbers by size.
* A producer unknown in this partition is either new, and then its first number is 0, or forgotten (its state expired,
  or the topic was deleted and made again), and then any number must do. Apache Kafka cannot tell these apart and takes
  any number; so when the first of several batches in flight fails and the second arrives, the second is taken and the
  first is lost or reordered. Here `core.producer_ids` knows the age of every id that was handed out, and an id too
  young to have been forgotten must start at 0.

The state of one producer in one partition is an immutable `bytes` value, a few fields packed one behind the other.
There may be a million of them, and a packed value costs a fifth of what the same numbers cost as Python objects, can be
kept by a checkpoint without copying, and is written to disk as it is.

    8 bytes   when the producer was last heard, milliseconds (decides expiry)
    2         epoch; less 2^15 where a marker is all that was ever on record
    24 each   up to five batches, oldest first: last sequence, record count, base offset, timestamp that was answered

Judging and noting cost the same however many records or producers there are.
"""

import struct
from collections.abc import Container, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

WINDOW_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFF_FFFF

_HEAD: Final = struct.Struct("<qh")
_TIME: Final = struct.Struct("<q")
_BATCH: Final = struct.Struct("<IIqq")
# What the epoch of a state is less that begins with a marker.
_BARE_EPOCHS: Final = 1 << 15
# How a batch begins: what it claimed.
_CLAIM: Final = struct.Struct("<II")
_HEAD_BYTES: Final = _HEAD.size
_BATCH_BYTES: Final = _BATCH.size
# With this many bytes a window is full and the oldest batch falls out when a new one is noted.
_FULL_BYTES: Final = _HEAD_BYTES + WINDOW_BATCHES * _BATCH_BYTES


class Outcome(IntEnum):
    """The verdict on a claim."""

    ACCEPTED = 0
    DUPLICATE = 1
    GAP = 2
    FENCED = 3


class Standing(IntEnum):
    """Where a sender stands against what is on record for its producer id in this partition."""

    NEW = 0  # nothing on record, and nothing can have been forgotten
    FORGOTTEN = 1  # nothing on record, but there may have been
    CURRENT = 2  # the epoch on record
    SUCCESSOR = 3  # a later epoch
    ZOMBIE = 4  # an earlier epoch


class Number(IntEnum):
    """Which number a batch claims that is no repetition."""

    NEXT = 0  # right behind the last one, or 0 where no number of this epoch is on record
    OTHER = 1


# By their short names, because looking a member up in its enumeration takes longer than all the rest of a verdict.
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
    """A batch in the window: what it claimed, where it went, and the timestamp its sender was told."""

    last_sequence: int
    record_count: int
    base_offset: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return advance(self.last_sequence, 1 - self.record_count)


class Judgement(NamedTuple):
    """The outcome for one batch. A duplicate comes with the original.

    `expected` is what would have been accepted: the sequence number after a gap, the epoch for a zombie.
    """

    outcome: Outcome
    original: KnownBatch | None = None
    expected: int = 0


_ACCEPTED: Final = Judgement(Outcome.ACCEPTED)

RUN_RECORDS_MAX: Final = 1 << 30
"""How far back a run reaches: half of all numbers, so that the other half is always ahead of it."""


def advance(sequence: int, count: int) -> int:
    """The sequence number `count` further on, across the wrap from 2^31 - 1 to 0."""
    return (sequence + count) & SEQUENCE_MASK


def judge(state: bytes | None, is_new: bool, epoch: int, first_sequence: int, record_count: int) -> Judgement:
    """The verdict on a batch that claims `record_count` numbers from `first_sequence` on in `epoch`.

    `state` is what is on record for its producer id in this partition. If nothing is on record, `is_new` says that
    nothing can have been forgotten either.
    """
    expected = due = 0
    if state is None:
        standing = NEW if is_new else FORGOTTEN
    else:
        known_epoch = epoch_of(state)
        if epoch == known_epoch:
            standing = CURRENT
            if len(state) > _HEAD_BYTES:
                last_sequence = _BATCH.unpack_from(state, len(state) - _BATCH_BYTES)[0]
                expected = due = (last_sequence + 1) & SEQUENCE_MASK
            original = find_repeated(state, first_sequence, record_count)
            if original is not None:
                return Judgement(DUPLICATE, original)
        else:
            standing = SUCCESSOR if epoch > known_epoch else ZOMBIE
            expected = 0 if standing is SUCCESSOR else known_epoch
    outcome = VERDICTS[standing][NEXT if first_sequence == due else OTHER]
    return _ACCEPTED if outcome is ACCEPTED else Judgement(outcome, None, expected)


def find_repeated(state: bytes, first_sequence: int, record_count: int) -> KnownBatch | None:
    """The batch in the window that claimed exactly these numbers; the latest one, should there be two."""
    last_sequence = (first_sequence + record_count - 1) & SEQUENCE_MASK
    wanted = _CLAIM.pack(last_sequence, record_count)
    for position in range(len(state) - _BATCH_BYTES, 0, -_BATCH_BYTES):
        if state.startswith(wanted, position):
            return KnownBatch._make(_BATCH.unpack_from(state, position))
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
    """The state after a batch was accepted. A later epoch starts an empty window, a full window loses its oldest."""
    head = _HEAD.pack(now_ms, epoch)
    batch = _BATCH.pack(last_sequence, record_count, base_offset, timestamp_ms)
    if state is None or epoch_of(state) != epoch:
        return head + batch
    kept_from = _HEAD_BYTES + _BATCH_BYTES if len(state) == _FULL_BYTES else _HEAD_BYTES
    return head + state[kept_from:] + batch


def note_marker(state: bytes | None, now_ms: int, epoch: int) -> bytes:
    """The state after a transaction was ended in `epoch`. A marker claims no number. A later epoch empties the window,
    so that the next number has to be 0 and batches that are late from before are fenced. A marker of a producer that
    is not on record leaves a state without any number.
    """
    if state is None:
        return _HEAD.pack(now_ms, epoch - _BARE_EPOCHS)
    if epoch > epoch_of(state):
        return _HEAD.pack(now_ms, epoch)
    return _TIME.pack(now_ms) + state[_TIME.size :]


def judge_run(
    state: bytes | None, is_new: bool, epoch: int, first_sequence: int, record_count: int
) -> tuple[int, Judgement]:
    """How many of these consecutive records, from the first one on, share one fate, and which.

    For records that have lost the batches they were sent in: a repetition may be cut anywhere, so each record is a
    claim of its own. `state` is what `note_run` made: every number that was accepted in its epoch, as one run.
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
    behind = (expected - first_sequence) & SEQUENCE_MASK
    if behind == 0:
        return record_count, Judgement(VERDICTS[standing][NEXT], None, expected)
    if behind <= known_count:
        return min(record_count, behind), Judgement(DUPLICATE, None, expected)
    # What is neither known nor next, up to where the known ones begin; they end where the next one is.
    return min(record_count, behind - known_count), Judgement(VERDICTS[standing][OTHER], None, expected)


def note_run(state: bytes | None, now_ms: int, epoch: int, last_sequence: int, record_count: int) -> bytes:
    """The state after records were accepted that `judge_run` judged: the run of their epoch, grown by them.

    Only the next number is ever accepted, so all numbers accepted in an epoch are consecutive, and one run knows them
    all. A later epoch starts a new one.
    """
    if state is not None and epoch_of(state) == epoch:
        record_count += _CLAIM.unpack_from(state, len(state) - _BATCH_BYTES)[1]
    return note(None, now_ms, epoch, last_sequence, min(record_count, RUN_RECORDS_MAX), 0, -1)


def epoch_of(state: bytes) -> int:
    return state[8] | (state[9] & 0x7F) << 8


def is_bare(state: bytes) -> bool:
    """Whether the end of a transaction is all that was ever on record: what came before it may have been forgotten."""
    return state[9] >> 7 == 1


def next_of(state: bytes) -> int:
    """The number behind the last one on record, in a state with a batch or a run."""
    last_sequence: int = _CLAIM.unpack_from(state, len(state) - _BATCH_BYTES)[0]
    return advance(last_sequence, 1)


def last_heard_ms(state: bytes) -> int:
    return int.from_bytes(state[:8], "little", signed=True)


def window_of(state: bytes) -> list[KnownBatch]:
    """The batches in the window, oldest first."""
    return [KnownBatch._make(fields) for fields in _BATCH.iter_unpack(state[_HEAD_BYTES:])]


class Producers:
    """Everything on record about the producers of one partition.

    The states are kept in the order in which the producers were last heard, so those to forget stand in front, and
    forgetting costs nothing until one of them is old enough.
    """

    __slots__ = ("_states",)

    def __init__(self, states: Iterable[tuple[int, bytes]] = ()) -> None:
        self._states: dict[int, bytes] = dict(states)

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> bytes | None:
        return self._states.get(producer_id)

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Every producer id with its state, longest silent first."""
        return iter(self._states.items())

    def latest(self) -> Iterator[tuple[int, bytes]]:
        """The same, but those first that were heard last."""
        return reversed(self._states.items())

    def note(
        self,
        producer_id: int,
        now_ms: int,
        epoch: int,
        last_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp_ms: int,
    ) -> None:
        """An accepted batch becomes part of the record."""
        states = self._states
        states[producer_id] = note(
            states.pop(producer_id, None), now_ms, epoch, last_sequence, record_count, base_offset, timestamp_ms
        )

    def note_marker(self, producer_id: int, now_ms: int, epoch: int) -> None:
        """The end of a transaction becomes part of the record."""
        states = self._states
        states[producer_id] = note_marker(states.pop(producer_id, None), now_ms, epoch)

    def forget_silent(self, before_ms: int, at_most: int, kept: Container[int] = ()) -> int:
        """Forget up to `at_most` producers not heard since `before_ms`, and none that is `kept`; answer how many."""
        silent: list[int] = []
        for producer_id, state in self._states.items():
            heard_ms = last_heard_ms(state)
            if heard_ms < before_ms:
                if producer_id not in kept:
                    silent.append(producer_id)
                    if len(silent) == at_most:
                        break
            elif heard_ms <= last_heard_ms(next(reversed(self._states.values()))):
                break
            # Otherwise the clock ran ahead at that time, and producers behind this one may be silent for long.
        for producer_id in silent:
            del self._states[producer_id]
        return len(silent)

    def snapshot(self) -> dict[int, bytes]:
        """The record as it stands now, not changed by anything that follows: the values are immutable."""
        return dict(self._states)
