"""One pass over the sealed segments of a partition: it finds the last offset of each key, then rewrites segments.

It writes new files beside the old ones; the log uses the old ones until it swaps them (`Log.swap`), group by group in
the order of the log, so that a tombstone is never removed before the records that it deletes. A pass that ends early,
even by a crash, leaves only files that nobody uses.

A pass is made on the event loop, from values that do not change, and then runs only in a thread: nothing here uses the
log. Its memory is limited to the table of keys, one batch with its decompressed records, and a piece of output.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from semel.log.compaction.keys import PLAIN_KEY_BYTES_MAX, LastOffsets, digest
from semel.log.compaction.output import SegmentOutput
from semel.log.compaction.records import records_in
from semel.log.compaction.rewrite import (
    AT_NEXT_PASS,
    NO_HORIZON,
    Rules,
    has_gone_by,
    horizon_of,
    marker_with_horizon,
    without_superseded,
)
from semel.log.compaction.transactions import AbortedSpans, TransactionsPassed
from semel.log.storage.damage import Misread
from semel.log.storage.files import Files
from semel.log.storage.segment import Segment, digest_after, headers
from semel.wire.batch import CHECKED_FROM, BatchHeader, Buffer, read_header
from semel.wire.checksum import crc32c
from semel.wire.errors import ProtocolError
from semel.wire.records import opened

_PIECE_BYTES: Final = 1024 * 1024
# Larger than every offset.
_NOWHERE: Final = 2**63


@dataclass(slots=True)
class Tally:
    """What a pass did, for the operator."""

    read_bytes: int = 0
    written_bytes: int = 0
    removed_records: int = 0
    # Batches that stay as they are because they cannot be decompressed, or become too large.
    unopened_batches: int = 0


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Sealed segments, and the one that may replace them: None if none of their batches is left.

    If `is_changed` is false, the old segments stay, and nothing was written.
    """

    old: list[Segment]
    new: Segment | None
    is_changed: bool
    now_ms: int
    # From the first of these offsets to before the second, there are tombstones that only the next pass can remove.
    postponed: tuple[int, int]
    # The horizon of a segment without such tombstones.
    horizon_ms: int

    def forget_horizons(self) -> None:
        """Note that the unchanged segments have no tombstone left that could be removed now. Call it on the event
        loop.
        """
        begin, end = self.postponed
        for segment in self.old:
            is_postponed = max(begin, segment.base_offset) < min(end, segment.next_offset)
            if has_gone_by(segment.horizon_ms, self.now_ms) and not is_postponed:
                segment.horizon_ms = self.horizon_ms


@dataclass(slots=True)
class Pass:
    """The parameters of a pass, and its progress. It calls `pause` often, to let others work."""

    files: Files
    directory: str
    segments: list[Segment]
    cleaned_until: int
    aborted: AbortedSpans
    rules: Rules
    key_bytes_max: int
    segment_bytes: int
    pause: Callable[[], None]
    # Whether to raise Misread for a damaged batch, of which there may be another copy.
    refuses_damage: bool = False
    # The records that a repair has given up. They lie between segments, and readers are told of them only there.
    given_up: Sequence[tuple[int, int]] = ()
    tally: Tally = field(default_factory=Tally)
    transactions: TransactionsPassed = field(init=False)
    last_offsets: LastOffsets = field(init=False)
    # By base offset, the segments of which certainly no record remains: how many records they have.
    superseded: dict[int, int] = field(default_factory=dict)
    # The first batch that stayed unopened. A later tombstone may delete one of its records, so none may be removed.
    unopened_from: int = _NOWHERE
    # From this offset on, the table had no space for tombstones that an earlier pass left.
    postponed_from: int = _NOWHERE
    # Whether the last batch has the last record and a horizon that has gone by: the record may be a tombstone that can
    # be removed when later records are compacted.
    has_late_end: bool = False

    def __post_init__(self) -> None:
        self.transactions = TransactionsPassed(self.aborted)
        # An earlier pass may have removed the segments that came last then: of an aborted transaction nothing stays.
        end = max(self.segments[-1].next_offset, self.cleaned_until)
        self.last_offsets = LastOffsets(self.key_bytes_max, end)

    @property
    def until(self) -> int:
        """The offset below which the partition is clean after all groups were swapped."""
        return self.last_offsets.until

    @property
    def is_complete(self) -> bool:
        """Whether the pass cleans all of its segments."""
        return self.until >= self.segments[-1].next_offset

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

        Before that, find the tombstones whose time is up, because a tombstone may be removed only together with all
        records that it deletes.
        """
        self._survey_marks()
        self.transactions = TransactionsPassed(self.aborted)
        noted = self._survey_keys()
        # Here and not later, because the first question sorts the table, and `to_read` is called on the event loop.
        self.superseded = {
            segment.base_offset: records
            for segment, records in noted
            if self.last_offsets.has_none_of(segment.base_offset, segment.next_offset)
        }

    def _survey_keys(self) -> list[tuple[Segment, int]]:
        """Note the new records. Returns the segments of which every batch was noted, and is of no transaction, with the
        number of their records.
        """
        noted: list[tuple[Segment, int]] = []
        last_offsets = self.last_offsets
        last_offsets.noted_from = self.cleaned_until
        for segment in self.segments:
            if segment.next_offset <= self.cleaned_until:
                continue
            noted_bytes = noted_records = 0
            with closing(self._batches(segment)) as batches:
                for header, batch in batches:
                    if header.next_offset <= self.cleaned_until or self._supersedes_nothing(header):
                        continue
                    if header.record_count > last_offsets.keys_max or not _is_intact(header, batch):
                        self._leave_out(header)
                        continue
                    if not last_offsets.has_space(header.record_count):
                        last_offsets.until = header.base_offset
                        return noted
                    try:
                        self._note_keys(header, batch)
                    except ProtocolError:
                        self._leave_out(header)
                        continue
                    if not header.is_transactional:
                        noted_bytes += header.batch_bytes
                        noted_records += header.record_count
            if noted_bytes == segment.size > 0:
                noted.append((segment, noted_records))
        return noted

    def _leave_out(self, header: BatchHeader) -> None:
        self.tally.unopened_batches += 1
        self.last_offsets.leave_out(header.base_offset)

    def _survey_marks(self) -> None:
        """Note the tombstones of earlier passes whose time is up; they take at most half of the table. The first batch
        may take more, because otherwise the tombstones of a large one would be postponed for ever.
        """
        offsets, keys_max = self.last_offsets.offsets, self.last_offsets.keys_max
        for segment in self.segments:
            if segment.base_offset >= self.cleaned_until or not has_gone_by(segment.horizon_ms, self.rules.now_ms):
                continue
            with closing(self._batches(segment)) as batches:
                for header, batch in batches:
                    is_late = has_gone_by(horizon_of(header), self.rules.now_ms)
                    if header.next_offset > self.cleaned_until or header.is_control or not is_late:
                        continue
                    if header.record_count > keys_max:
                        continue
                    if offsets and 2 * (len(offsets) + header.record_count) > keys_max:
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
                offsets[key if len(key) <= PLAIN_KEY_BYTES_MAX else digest(key)] = base_offset + offset_delta

    def groups(self) -> list[list[Segment]]:
        """The segments to rewrite, grouped: as many together as certainly fit into one segment, so that there are not
        ever more small ones.
        """
        groups: list[list[Segment]] = []
        bytes_left = 0
        for segment in self.segments:
            if segment.base_offset >= self.until:
                break
            is_behind_hole = any(
                groups and groups[-1][0].base_offset < begin < segment.base_offset for begin, _ in self.given_up
            )
            if segment.size > bytes_left or is_behind_hole:
                groups.append([])
                bytes_left = self.segment_bytes
            groups[-1].append(segment)
            bytes_left -= segment.size
        return groups

    def to_read(self, group: list[Segment]) -> list[Segment]:
        """The segments that `rewrite` reads of these."""
        return [segment for segment in group if segment.base_offset not in self.superseded]

    def rewrite(self, group: list[Segment]) -> Rewritten:
        """Write the remaining records of these segments. The caller has to rewrite the `groups` in their order."""
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
        horizon_ms = AT_NEXT_PASS if self.has_late_end else NO_HORIZON
        if new is not None and new.horizon_ms == NO_HORIZON:
            new.horizon_ms = horizon_ms
        postponed = self.postponed_from, min(self.cleaned_until, self.unopened_from)
        return Rewritten(group, new, is_changed, self.rules.now_ms, postponed, horizon_ms)

    def _rewrite_segment(self, segment: Segment, output: SegmentOutput, is_begun: bool) -> bool:
        """Write the remaining records of a segment. If `is_begun` is false, nothing is written before the first
        difference. Returns whether the output is begun afterwards.
        """
        if segment.base_offset in self.superseded:
            self.tally.removed_records += self.superseded[segment.base_offset]
            return True
        passed_bytes = 0
        with closing(self._batches(segment)) as batches:
            for header, batch in batches:
                if self.refuses_damage and not _is_intact(header, batch):
                    raise Misread(segment.path, passed_bytes, header.base_offset, segment.next_offset)
                kept = self._kept(header, batch)
                if kept is not batch and not is_begun:
                    self._copy(segment, passed_bytes, output)
                    is_begun = True
                passed_bytes += len(batch)
                if kept is None:
                    self.tally.removed_records += header.record_count
                    continue
                if header.next_offset > self.rules.last_offset and not header.is_control:
                    self.has_late_end = has_gone_by(horizon_of(header), self.rules.now_ms)
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
        """Copy the first `size` bytes of a segment, which have no difference."""
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
        """Whether a later pass can remove the tombstones that this one leaves in the batch, because their time is not
        up yet, or the table was full in this pass.
        """
        horizon_ms = horizon_of(header)
        is_postponed = self.postponed_from <= header.base_offset < min(self.cleaned_until, self.unopened_from)
        return horizon_ms > self.rules.now_ms or (is_postponed and horizon_ms != NO_HORIZON)

    def _kept(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """The batch itself, a smaller one with its remaining records, or None."""
        rules = self.rules
        if self._is_aborted(header):
            # Even a damaged one: the log will soon forget that its transaction was aborted.
            return None
        if not header.is_control and self.last_offsets.has_none_of(header.base_offset, header.next_offset):
            # It was intact when its keys were noted.
            return None
        if not _is_intact(header, batch):
            # A rewritten batch would have a right checksum, and nobody would ever notice the damage.
            return self._unopened(header, batch)
        if header.is_control:
            has_records = self.transactions.end(header.producer_id)
            if has_records or header.base_offset >= self.until:
                return batch
            if horizon_of(header) == NO_HORIZON:
                return marker_with_horizon(header, batch, rules)
            is_late = has_gone_by(horizon_of(header), rules.now_ms)
            return None if is_late and header.base_offset != rules.last_offset else batch
        if header.base_offset >= self.until:
            return batch
        offsets, marks_may_go = self.last_offsets.offsets, self.unopened_from == _NOWHERE
        if header.record_count <= self.last_offsets.keys_max:
            with suppress(ProtocolError):
                return without_superseded(header, batch, offsets, rules, marks_may_go=marks_may_go)
        return self._unopened(header, batch)

    def _unopened(self, header: BatchHeader, batch: memoryview) -> memoryview:
        self.unopened_from = min(self.unopened_from, header.base_offset)
        return batch

    def _supersedes_nothing(self, header: BatchHeader) -> bool:
        return header.is_control or self._is_aborted(header)

    def _is_aborted(self, header: BatchHeader) -> bool:
        return (
            header.is_transactional
            and not header.is_control
            and self.transactions.is_aborted(header.producer_id, header.base_offset)
        )

    def _batches(self, segment: Segment) -> Generator[tuple[BatchHeader, memoryview], None, None]:
        """The batches of a segment, one at a time, with a pause for others after each. Raises Misread if their headers
        are others than were written: what is made of them would count as right.
        """
        if segment.size == 0:
            return
        file = self.files.open(segment.path)
        try:
            position, offset, digest = 0, segment.base_offset, 0
            while position < segment.size:
                piece = memoryview(file.read_at(min(_PIECE_BYTES, segment.size - position), position))
                at = 0
                for at, header in headers(piece, segment, position, offset):
                    batch = piece[at : at + header.batch_bytes]
                    if len(batch) < header.batch_bytes:
                        if at:
                            break
                        batch = memoryview(file.read_at(header.batch_bytes, position))
                    yield header, batch
                    at, offset = at + header.batch_bytes, header.next_offset
                    digest = digest_after(digest, header)
                    self.pause()
                position += at
                self.tally.read_bytes += at
            if digest != segment.digest:
                what = "other batches than were written"
                raise Misread(segment.path, 0, segment.base_offset, segment.next_offset, what)
        finally:
            file.close()


def _is_intact(header: BatchHeader, batch: memoryview) -> bool:
    return crc32c(batch[CHECKED_FROM:]) == header.checksum
