"""One pass over the sealed segments of a partition: the last offset of each key is found, then segments are rewritten.

What is rewritten lies in new files beside the old ones; the log goes on as if nothing had happened until it swaps them
(`Log.swap`), group by group and in the order of the log, so that a mark of deletion never goes before what it deleted.
A pass that is given up half-way, or cut off by a crash, leaves files that nobody knows of, and nothing else.

Made on the event loop of values that do not change, run in a thread, and never in both: nothing here touches the log.
Memory is bounded by the table of keys, by one batch and what it decompresses to, and by a piece of output.
"""

from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from semel.compaction.keys import LastOffsets, digest
from semel.compaction.output import SegmentOutput
from semel.compaction.records import records_in
from semel.compaction.rewrite import (
    NO_HORIZON,
    Rules,
    has_gone_by,
    horizon_of,
    marker_with_horizon,
    without_superseded,
)
from semel.compaction.transactions import AbortedSpans, TransactionsPassed
from semel.core.batch import CHECKED_FROM, BatchHeader, Buffer, read_header
from semel.core.checksum import crc32c
from semel.storage.files import Files
from semel.storage.journal import Damaged
from semel.storage.segment import Segment, headers
from semel.wire.errors import ProtocolError
from semel.wire.records import opened

_PIECE_BYTES: Final = 1024 * 1024
# Beyond every offset.
_NOWHERE: Final = 2**63


@dataclass(slots=True)
class Tally:
    """What a pass did, for the operator."""

    read_bytes: int = 0
    written_bytes: int = 0
    removed_records: int = 0
    # Batches that stay as they are because they cannot be opened, or are too large when opened.
    unopened_batches: int = 0


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Sealed segments, and the one that may take their place: None if no record of them is left.

    If they are not changed they stay, and nothing was written.
    """

    old: list[Segment]
    new: Segment | None
    is_changed: bool
    now_ms: int
    # From here on there are marks of deletion that the next pass has to come back for.
    postponed_from: int

    def forget_horizons(self) -> None:
        """Segments that stay as they are have nothing in them that would have to go by now. For the event loop."""
        for segment in self.old:
            if has_gone_by(segment.horizon_ms, self.now_ms) and segment.next_offset <= self.postponed_from:
                segment.horizon_ms = NO_HORIZON


@dataclass(slots=True)
class Pass:
    """What one pass is about, and how far it has come. `pause` is called again and again, to let others work."""

    files: Files
    directory: str
    segments: list[Segment]
    cleaned_until: int
    aborted: AbortedSpans
    rules: Rules
    key_bytes_max: int
    segment_bytes: int
    pause: Callable[[], None]
    tally: Tally = field(default_factory=Tally)
    transactions: TransactionsPassed = field(init=False)
    last_offsets: LastOffsets = field(init=False)
    # Whether a batch stayed unopened: what it holds of a key is not known, and may be what a later mark deletes.
    has_passed_unopened: bool = False
    # From this offset on there was no space in the table for marks of deletion that an earlier pass left.
    postponed_from: int = _NOWHERE

    def __post_init__(self) -> None:
        self.transactions = TransactionsPassed(self.aborted)
        self.last_offsets = LastOffsets(self.key_bytes_max, self.segments[-1].next_offset)

    @property
    def until(self) -> int:
        """Below this offset the partition is clean once all groups were swapped."""
        return self.last_offsets.until

    @property
    def is_complete(self) -> bool:
        """Whether all that was to be cleaned will be."""
        return self.until == self.segments[-1].next_offset

    @property
    def to_survey(self) -> list[Segment]:
        """The segments that `survey` reads."""
        return [
            segment
            for segment in self.segments
            if segment.next_offset > self.cleaned_until or has_gone_by(segment.horizon_ms, self.rules.now_ms)
        ]

    def survey(self) -> None:
        """Find the last record of each key in the new records, until the table is full. The caller calls this first.

        Before that, find the marks of deletion whose time is up, because a mark is removed only together with all
        records that it deletes.
        """
        self._survey_marks()
        self.transactions = TransactionsPassed(self.aborted)
        last_offsets = self.last_offsets
        last_offsets.noted_from = self.cleaned_until
        for segment in self.segments:
            if segment.next_offset <= self.cleaned_until:
                continue
            with closing(self._batches(segment)) as batches:
                for header, batch in batches:
                    if header.next_offset <= self.cleaned_until or self._supersedes_nothing(header):
                        continue
                    if header.record_count > last_offsets.keys_max or not _is_intact(header, batch):
                        self._leave_out(header)
                        continue
                    if not last_offsets.has_space(header.record_count):
                        last_offsets.until = header.base_offset
                        return
                    try:
                        self._note_keys(header, batch)
                    except ProtocolError:
                        self._leave_out(header)

    def _leave_out(self, header: BatchHeader) -> None:
        self.tally.unopened_batches += 1
        self.last_offsets.leave_out(header.base_offset)

    def _survey_marks(self) -> None:
        """Note the marks that an earlier pass left and whose time is up, in half of the table at most."""
        for segment in self.segments:
            if segment.base_offset >= self.cleaned_until or not has_gone_by(segment.horizon_ms, self.rules.now_ms):
                continue
            with closing(self._batches(segment)) as batches:
                for header, batch in batches:
                    is_late = has_gone_by(horizon_of(header), self.rules.now_ms)
                    if header.next_offset > self.cleaned_until or header.is_control or not is_late:
                        continue
                    if not self.last_offsets.has_space(2 * header.record_count + len(self.last_offsets.offsets)):
                        self.postponed_from = header.base_offset
                        return
                    if _is_intact(header, batch):
                        with suppress(ProtocolError):
                            self._note_keys(header, batch, only_marks=True)

    def _note_keys(self, header: BatchHeader, batch: memoryview, *, only_marks: bool = False) -> None:
        offsets = self.last_offsets.offsets
        base_offset = header.base_offset
        records = opened(batch, header.attributes, self.rules.opened_bytes_max)
        for _, _, offset_delta, key, has_value in records_in(records, header):
            if key is not None and not (only_marks and has_value):
                offsets[digest(key)] = base_offset + offset_delta

    def groups(self) -> list[list[Segment]]:
        """The segments to rewrite: as many in one as surely fit a segment, so that small ones do not pile up."""
        groups: list[list[Segment]] = []
        bytes_left = 0
        for segment in self.segments:
            if segment.base_offset >= self.until:
                break
            if segment.size > bytes_left:
                groups.append([])
                bytes_left = self.segment_bytes
            groups[-1].append(segment)
            bytes_left -= segment.size
        return groups

    def rewrite(self, group: list[Segment]) -> Rewritten:
        """Write what is left of these segments. The caller goes through the `groups` in their order."""
        output = SegmentOutput(self.files, self.directory, group)
        is_changed = len(group) > 1
        try:
            for segment in group:
                is_changed = self._rewrite_segment(segment, output, is_changed)
            new = output.finish() if is_changed else None
        except BaseException:
            output.discard()
            raise
        self.tally.written_bytes += 0 if new is None else new.size
        return Rewritten(group, new, is_changed, self.rules.now_ms, self.postponed_from)

    def _rewrite_segment(self, segment: Segment, output: SegmentOutput, is_begun: bool) -> bool:
        """Write what is left of a segment, from the first difference on if it is not begun; whether it is, by then."""
        passed_bytes = 0
        with closing(self._batches(segment)) as batches:
            for header, batch in batches:
                kept = self._kept(header, batch)
                if kept is not batch and not is_begun:
                    self._copy(segment, passed_bytes, output)
                    is_begun = True
                passed_bytes += len(batch)
                if kept is None:
                    self.tally.removed_records += header.record_count
                    continue
                if is_begun:
                    stays = read_header(kept)
                    self.tally.removed_records += header.record_count - stays.record_count
                    output.add(stays, kept)
                    if self._is_to_come_back_for(stays) or horizon_of(stays) != horizon_of(header):
                        output.note_horizon(horizon_of(stays))
                if header.is_transactional and not header.is_control:
                    self.transactions.note_kept(header.producer_id)
        return is_begun

    def _copy(self, segment: Segment, size: int, output: SegmentOutput) -> None:
        """The first `size` bytes of a segment stay as they are."""
        if size == 0:
            return
        copied = 0
        with closing(self._batches(segment)) as batches:
            for header, batch in batches:
                output.add(header, batch)
                if self._is_to_come_back_for(header):
                    output.note_horizon(horizon_of(header))
                copied += len(batch)
                if copied >= size:
                    break

    def _is_to_come_back_for(self, header: BatchHeader) -> bool:
        """Whether a later pass may remove the marks of deletion that this one leaves in the batch: their time is not up
        yet, or the table was full in this pass."""
        horizon_ms = horizon_of(header)
        is_postponed = self.postponed_from <= header.base_offset < self.cleaned_until
        return horizon_ms > self.rules.now_ms or (is_postponed and horizon_ms != NO_HORIZON)

    def _kept(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """What is left of a batch: itself, or less, or nothing."""
        rules = self.rules
        if not _is_intact(header, batch):
            # Rewritten, its checksum would be right, and nobody would ever learn of the damage.
            self.has_passed_unopened = True
            return batch
        if header.is_control:
            has_records = self.transactions.end(header.producer_id)
            if has_records or header.base_offset >= self.until:
                return batch
            if horizon_of(header) == NO_HORIZON:
                return marker_with_horizon(header, batch, rules)
            is_late = has_gone_by(horizon_of(header), rules.now_ms)
            return None if is_late and header.base_offset != rules.last_offset else batch
        if header.is_transactional and self.transactions.is_aborted(header.producer_id, header.base_offset):
            return None
        if header.base_offset >= self.until:
            return batch
        if self.last_offsets.has_none_of(header.base_offset, header.next_offset):
            return None
        offsets, marks_may_go = self.last_offsets.offsets, not self.has_passed_unopened
        if header.record_count <= self.last_offsets.keys_max:
            with suppress(ProtocolError):
                return without_superseded(header, batch, offsets, rules, marks_may_go=marks_may_go)
        self.has_passed_unopened = True
        return batch

    def _supersedes_nothing(self, header: BatchHeader) -> bool:
        return header.is_control or (
            header.is_transactional and self.transactions.is_aborted(header.producer_id, header.base_offset)
        )

    def _batches(self, segment: Segment) -> Generator[tuple[BatchHeader, memoryview], None, None]:
        """The batches of a segment, one at a time, and time for others after each."""
        if segment.size == 0:
            return
        file = self.files.open(segment.path)
        try:
            position = 0
            while position < segment.size:
                piece = memoryview(file.read_at(min(_PIECE_BYTES, segment.size - position), position))
                at = 0
                for at, header in headers(piece, segment, position):
                    if position + at + header.batch_bytes > segment.size:
                        raise Damaged(f"{self.files.describe(segment.path)}: a batch goes beyond the end")
                    batch = piece[at : at + header.batch_bytes]
                    if len(batch) < header.batch_bytes:
                        if at:
                            break
                        batch = memoryview(file.read_at(header.batch_bytes, position))
                    yield header, batch
                    at += header.batch_bytes
                    self.pause()
                position += at
                self.tally.read_bytes += at
        finally:
            file.close()


def _is_intact(header: BatchHeader, batch: memoryview) -> bool:
    return crc32c(batch[CHECKED_FROM:]) == header.checksum
