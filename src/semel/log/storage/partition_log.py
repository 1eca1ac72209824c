"""One partition on disk: its state machine and the segments that hold its records.

Reading needs no lock and no copy of the state: the readable part ends at a `Mark`, an offset together with its place in
a segment, so that a fetch never has to look for the end. There are two marks: the high watermark for readers of all
records, and the last stable offset for readers of committed records. `semel.log.storage.log` moves both when the
records before them are durable, or, with `--durability os`, when they are written.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import takewhile, zip_longest
from typing import Any, Final

from semel.log.core.configs import SEGMENT_BYTES_DEFAULT, TopicConfigs
from semel.log.core.entries import PartitionName
from semel.log.core.partition import Partition
from semel.log.storage.aborted_blocks import AbortedBlocks, BlockLayout
from semel.log.storage.checkpoint import PartitionFiles, PartitionParts, restore_state
from semel.log.storage.damage import Misread
from semel.log.storage.journal import Corrupt
from semel.log.storage.segment import (
    SCAN_BYTES,
    Index,
    Mark,
    Segment,
    SegmentsThen,
    Stretch,
    latest_ms_of,
)
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.batch import LENGTH_PREFIX_BYTES, TRANSACTIONAL_BIT, BatchHeader, Buffer, read_header

# A partition remembers the places of so many offsets at which the next fetch will probably begin.
_REMEMBERED_PLACES_MAX: Final = 16
# A partition with more segments than this has no small ones any more: retention, for example, looks at all at once.
SEGMENTS_MAX: Final = 10_000
# The end of an empty partition. Twenty thousand partitions may be made at once, so they share it.
_NOTHING: Final = Mark(0, 0, 0)


class PartitionLog:
    """A partition's state, its records, and their ends: `readable`, and `stable` for readers of committed ones."""

    __slots__ = (
        "_bases",
        "_opened",
        "_places",
        "_segment_files",
        "_segments",
        "_writes",
        "aborted",
        "cleaned_until",
        "directory",
        "given_up",
        "index",
        "keeper",
        "name",
        "readable",
        "stable",
        "state",
        "topic_number",
        "watchers",
    )

    def __init__(
        self,
        topic_number: int,
        index: int,
        directory: str,
        segment_files: SegmentFiles,
        layout: BlockLayout,
        state: Partition,
    ) -> None:
        self.topic_number = topic_number
        self.index = index
        self.name = PartitionName(topic_number, index)
        self.directory = directory
        self.state = state
        # Below this offset compaction has left one record of each key.
        self.cleaned_until = 0
        # From which offset to before which one a repair has given records up.
        self.given_up: list[tuple[int, int]] = []
        self.readable = self.stable = _NOTHING
        # They are called in this order whenever a mark has moved.
        self.watchers: dict[Watcher, None] = {}
        # Set while a checkpoint is taken: called before the first change, to copy the state.
        self.keeper: Callable[[PartitionLog], None] | None = None
        self._segment_files = segment_files
        self.aborted = AbortedBlocks(self.state, directory, segment_files, layout)
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        # The first batch of each open transaction, by producer id, in the order in which they began.
        self._opened: dict[int, Mark] = {}
        self._places: dict[int, tuple[int, int]] = {}
        # The number of writes at the end, even of those that did not become part of the log.
        self._writes = 0

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, header: BatchHeader, batch: Buffer, at_ms: int, configs: TopicConfigs) -> None:
        """Write a batch at the end of the partition. Before `apply_append` no reader can see it."""
        self._before_change()
        self.aborted.put_away()
        self._writes += 1
        segment = self._segment_for(header.length + LENGTH_PREFIX_BYTES, at_ms, configs)
        self._segment_files.write(segment, [batch], segment.size)

    def apply_append(self, header: BatchHeader, at_ms: int) -> None:
        """Make the batch that was written last a part of the log."""
        segment = self._segments[-1]
        if header.attributes & TRANSACTIONAL_BIT and header.producer_id not in self._opened:
            self._opened[header.producer_id] = Mark(header.base_offset, segment.base_offset, segment.size)
        segment.note(header)
        self.state.apply_append(header, at_ms)

    def apply_marker(self, header: BatchHeader, at_ms: int, committed: bool) -> None:
        """Make the marker that was written last a part of the log; it ends its producer's transaction here."""
        # The write may have been long ago, before the checkpoint began.
        self._before_change()
        self._segments[-1].note(header)
        self._opened.pop(header.producer_id, None)
        self.state.apply_marker(header, at_ms, committed)

    def apply_log_start(self, offset: int) -> None:
        """Delete the records below `offset`."""
        self._before_change()
        first_block = self.state.aborted.first_block
        self.state.apply_log_start(offset)
        self.given_up = [(begin, end) for begin, end in self.given_up if end > offset]
        count = 0
        for segment in self._segments:
            # An empty segment waits for the next batch.
            if segment.size == 0 or segment.next_offset > offset:
                break
            count += 1
        self._segment_files.unnamed += [segment.path for segment in self._segments[:count]]
        self._segment_files.unnamed += self.aborted.freed(first_block)
        del self._segments[:count]
        del self._bases[:count]

    def drop(self) -> None:
        """Delete all records, because the topic was deleted."""
        self._segment_files.unnamed += self.paths

    def roll(self, at_ms: int) -> None:
        """Begin a new segment with the next batch, so that the active one can be compacted."""
        if self._segments and self._segments[-1].size:
            self._before_change()
            self._begin_segment(at_ms)

    def forget_silent(self, before_ms: int, at_most: int) -> int:
        """Forget producers that were silent since `before_ms` and have no open transaction; return how many."""
        self._before_change()
        return self.state.forget_silent(before_ms, at_most)

    def swap(self, old: list[Segment], new: Segment | None) -> bool:
        """Replace sealed segments by one with the records that compaction kept, or by none; False if they are gone.
        Readers skip the offsets of removed records. No aborted records are left below the end of these segments.
        """
        at = bisect_right(self._bases, old[0].base_offset) - 1
        if at < 0 or self._segments[at : at + len(old)] != old:
            return False
        self._before_change()
        first_block = self.state.aborted.first_block
        self._segments[at : at + len(old)] = [] if new is None else [new]
        self._bases = [segment.base_offset for segment in self._segments]
        self._places.clear()
        self.state.aborted.forget_below(old[-1].next_offset)
        self._segment_files.grown.add(self.directory)
        self._segment_files.unnamed += [segment.path for segment in old] + self.aborted.freed(first_block)
        return True

    def _before_change(self) -> None:
        if self.keeper is not None:
            self.keeper(self)

    def _segment_for(self, batch_bytes: int, at_ms: int, configs: TopicConfigs) -> Segment:
        if not self._segments:
            self._begin_segment(at_ms)
            return self._segments[-1]
        last = self._segments[-1]
        if last.size == 0:
            last.begun_at_ms = at_ms
        else:
            size = last.size + batch_bytes
            is_full = size > configs.segment_bytes or at_ms - last.begun_at_ms >= configs.segment_ms
            if is_full and len(self._segments) >= SEGMENTS_MAX:
                is_full = size > max(configs.segment_bytes, SEGMENT_BYTES_DEFAULT)
            if is_full:
                self._begin_segment(at_ms)
        return self._segments[-1]

    def _begin_segment(self, at_ms: int) -> None:
        base = self.state.next_offset
        if self._segments:
            if self._segments[-1].base_offset == base:
                return
            self._segment_files.seal(self._segments[-1])
        self._segments.append(Segment(self.directory, base, at_ms))
        self._bases.append(base)

    # -- reading ------------------------------------------------------------------------------------------------

    def end_mark(self) -> Mark:
        """The end of the partition, readable or not."""
        if not self._segments:
            return Mark(self.state.next_offset, self.state.next_offset, 0)
        last = self._segments[-1]
        return Mark(self.state.next_offset, last.base_offset, last.size)

    @property
    def last_write(self) -> tuple[int, Mark]:
        """The number of the last write, and the end of the partition. While both stay, its bytes lie after that end."""
        return self._writes, self.end_mark()

    def stable_mark(self, end: Mark) -> Mark:
        """Where the oldest open transaction begins; without one it is `end`, the end of the partition."""
        for mark in self._opened.values():
            return mark
        return end

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records must stop; never below the log start."""
        return max(self.stable.offset, self.state.log_start)

    def read(
        self, offset: int, bytes_max: int, until: Mark, *, whole_first_batch: bool
    ) -> tuple[bytes | memoryview, int]:
        """Whole batches before `until`, from the one with `offset` on, at most `bytes_max`; and the offset after them.

        With `whole_first_batch` the result has the first batch even if that is larger than `bytes_max`. `offset` must
        lie between the log start and `until`.
        """
        if bytes_max <= 0 and not whole_first_batch:
            return b"", offset
        while True:
            try:
                return self._read(offset, bytes_max, until, whole_first_batch)
            except Misread:
                # It is marked now, so the next try ends before it, or is refused.
                continue

    def _read(
        self, offset: int, bytes_max: int, until: Mark, whole_first_batch: bool
    ) -> tuple[bytes | memoryview, int]:
        segment, position, end = self._locate(offset, until)
        if segment is None:
            return b"", offset
        files = self._segment_files
        end_offset = min(files.right_until(segment)[1], until.offset)
        data, next_offset = files.batches(
            segment, position, offset, end, end_offset, bytes_max, whole_first_batch=whole_first_batch
        )
        return self._result(segment, position, data, next_offset) if data else (b"", offset)

    def cold_index(self, offset: int, bytes_max: int, until: Mark) -> Stretch | None:
        """The index that `read`, with these arguments, would get from the disk; None if it is cached."""
        segment = self._first_to_read(offset, bytes_max, until)
        if segment is None or (offset <= segment.base_offset and bytes_max >= segment.size):
            return None
        return self._segment_files.cold_index(segment)

    def cold_stretch(self, offset: int, bytes_max: int, until: Mark) -> Stretch | None:
        """The part of a file that `read`, with these arguments, would get from the disk; None if it is cached."""
        segment = self._first_to_read(offset, bytes_max, until)
        if segment is None:
            return None
        if self._known_place_of(segment, offset) is None:
            position, _ = self._segment_files.index_of(segment).before_offset(offset)
            left = segment.size - position
            if not self._segment_files.file_of(segment).is_cached(min(SCAN_BYTES, left), position):
                return Stretch(segment.path, position, min(SCAN_BYTES + bytes_max, left))
        segment, position, end = self._locate(offset, until)
        if segment is None:
            return None
        size = min(bytes_max, end - position)
        if self._segment_files.file_of(segment).is_cached(size, position):
            return None
        return Stretch(segment.path, position, size)

    def batches(self, offset: int, until: Mark) -> Iterator[tuple[BatchHeader, bytes | memoryview]]:
        """The batches from the one with `offset` on, each with its header."""
        data, offset = self.read(offset, SCAN_BYTES, until, whole_first_batch=True)
        while data:
            at = 0
            while at < len(data):
                header = read_header(data, at)
                yield header, data[at : at + header.batch_bytes]
                at += header.batch_bytes
            data, offset = self.read(offset, SCAN_BYTES, until, whole_first_batch=True)

    def batch_since(self, timestamp_ms: int, offset: int, until: Mark) -> tuple[BatchHeader, bytes | memoryview] | None:
        """The first readable batch that ends after `offset` and has a record of `timestamp_ms` or later."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp_ms or segment.next_offset <= offset:
                continue
            for begin, end, latest in self._indexed(segment):
                if latest >= timestamp_ms and end > offset:
                    for header, data in self._batches_within(max(begin, offset), end, until):
                        if header.max_timestamp >= timestamp_ms:
                            return header, data
        return None

    def latest_timestamp(self, until: Mark) -> int:
        """The latest timestamp of all readable batches, -1 if there is none."""
        latest_ms = -1
        for segment in self._segments:
            if self.state.log_start <= segment.base_offset and segment.next_offset <= until.offset:
                latest_ms = max(latest_ms, segment.max_timestamp)
                continue
            for begin, end, latest in self._indexed(segment):
                if self.state.log_start <= begin and end <= until.offset:
                    latest_ms = max(latest_ms, latest)
                else:
                    for header, _ in self._batches_within(begin, end, until):
                        latest_ms = max(latest_ms, header.max_timestamp)
        return latest_ms

    def _indexed(self, segment: Segment) -> Iterator[tuple[int, int, int]]:
        """The parts of a segment between entries of its index: first offset, end offset, latest timestamp."""
        if segment.size == 0:
            return iter(())
        index = self._segment_files.index_of(segment)
        ends = [*index.offsets[1:], segment.next_offset]
        return zip(index.offsets, ends, index.max_timestamps, strict=True)

    def _batches_within(self, begin: int, end: int, until: Mark) -> Iterator[tuple[BatchHeader, bytes | memoryview]]:
        """The readable batches from `begin` to before `end`."""
        begin = max(begin, self.state.log_start)
        if begin < end:
            yield from takewhile(lambda pair: pair[0].base_offset < end, self.batches(begin, until))

    def retained_from(self, now_ms: int, retention_ms: int, retention_bytes: int) -> int:
        """The log start after retention has deleted the segments that are too old or exceed the size limit."""
        start = self.state.log_start
        excess = self.size - retention_bytes if retention_bytes >= 0 else 0
        for segment, following in zip_longest(self._segments, self._segments[1:]):
            too_old = retention_ms >= 0 and latest_ms_of(segment, following, now_ms) < now_ms - retention_ms
            too_much = excess >= segment.size and segment is not self._segments[-1]
            if not segment.size or segment.next_offset > self.readable.offset or not (too_old or too_much):
                break
            excess -= segment.size
            start = max(start, segment.next_offset)
        return start

    def bytes_between(self, begin: Mark, end: Mark) -> int:
        """About how many bytes lie between two marks. Compaction may have made them fewer since."""
        if begin.segment_base == end.segment_base:
            return max(end.position - begin.position, 0)
        slot = max(bisect_right(self._bases, begin.segment_base) - 1, 0)
        between = takewhile(lambda segment: segment.base_offset < end.segment_base, self._segments[slot:])
        return max(sum(segment.size for segment in between) - begin.position, 0) + end.position

    @property
    def size(self) -> int:
        """The size of all batches on disk."""
        return sum(segment.size for segment in self._segments)

    @property
    def paths(self) -> list[str]:
        """The files that the partition may have."""
        paths = [segment.path for segment in self._segments]
        return paths + self.aborted.paths() if self.state.aborted.next_block else paths

    def to_files(self) -> PartitionFiles:
        """The segments, and the parts of files to which a checkpoint taken now would refer."""
        return PartitionFiles(SegmentsThen(self._segments), self.aborted.files())

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; the last one grows."""
        return self._segments

    @property
    def weight(self) -> int:
        """How much work it is to copy the state for a checkpoint, in pieces."""
        growing = self._segments[-1].index if self._segments else None
        aborted = self.state.aborted
        items = self.state.producers.weight + 4 * aborted.young_count + 3 * aborted.block_count
        return (len(self._segments) // 10 + items + (0 if growing is None else 3 * len(growing.offsets))) // 100

    @property
    def has_history(self) -> bool:
        """Whether a checkpoint needs a record of this partition."""
        return bool(self._segments) or self.state.next_offset > 0

    def to_record(self) -> dict[str, Any]:
        """The partition's record in the JSON part of a checkpoint."""
        return {
            "topic": self.topic_number,
            "index": self.index,
            "log_start": self.state.log_start,
            "next_offset": self.state.next_offset,
            "cleaned_until": self.cleaned_until,
            "epochs": self.state.epochs.snapshot(),
            "given_up": self.given_up,
        }

    def to_parts(self) -> PartitionParts:
        """The partition's packed parts for a checkpoint."""
        growing = self._segments[-1].index if self._segments else None
        return PartitionParts(
            growing.copy() if growing is not None else Index(),
            self.state.producers.snapshot(),
            dict(self._opened),
            *self.state.aborted.to_bytes(),
        )

    def restore(self, record: dict[str, Any], parts: PartitionParts) -> None:
        """Take the state from a checkpoint, whose files somebody else verifies."""
        restore_state(self.state, record, parts)
        self.cleaned_until = record["cleaned_until"]
        self.given_up = [(begin, end) for begin, end in record["given_up"]]
        self._segments = [Segment.from_record(self.directory, fields) for fields in record["segments"]]
        self._bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self._segments[-1].index = parts.growing_index if self._segments[-1].size else Index()
        self._opened = {producer_id: self._placed(mark) for producer_id, mark in parts.open_transactions.items()}

    def cut_after_end(self) -> None:
        """Remove the bytes after the end of the active segment, which are not part of the log."""
        if self._segments and self._segments[-1].size:
            last = self._segments[-1]
            file = self._segment_files.file_of(last)
            if file.size() > last.size:
                file.truncate(last.size)

    def _locate(self, offset: int, until: Mark) -> tuple[Segment | None, int, int]:
        """The segment and the place of the batch with `offset`, and the place where reading must end.

        If compaction has removed the record at `offset`, it is the next batch; None if there is none before `until`.
        Raises Corrupt where a segment is known to be damaged.
        """
        slot = max(bisect_right(self._bases, offset) - 1, 0)
        while offset < until.offset and slot < len(self._segments) and self._bases[slot] < until.offset:
            segment = self._segments[slot]
            # The place in a mark is right only if the mark lies in the middle of this segment: compaction may have
            # rewritten an older segment since.
            end = segment.size if segment.next_offset <= until.offset else until.position
            right_end, right_until = self._segment_files.right_until(segment)
            position = self._place_of(segment, offset) if offset < right_until else right_end
            if position < min(end, right_end):
                return segment, position, min(end, right_end)
            if offset < segment.next_offset and right_end < end:
                raise Corrupt(f"{segment.path}: damaged from offset {right_until} to {segment.next_offset - 1}")
            slot += 1
        return None, 0, 0

    def _first_to_read(self, offset: int, bytes_max: int, until: Mark) -> Segment | None:
        """The segment in which `read` looks first, if there is anything to read."""
        if bytes_max <= 0 or offset >= until.offset or not self._segments:
            return None
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def _known_place_of(self, segment: Segment, offset: int) -> int | None:
        """Where in the segment the batch with `offset` begins, if that is known without reading."""
        place = self._places.get(offset)
        if place is not None and place[0] == segment.base_offset:
            return place[1]
        return 0 if offset <= segment.base_offset else None

    def _placed(self, mark: Mark) -> Mark:
        """The same offset with its place now, if a repair has put what is left into other segments."""
        slot = max(bisect_right(self._bases, mark.offset) - 1, 0)
        if not self._segments or self._bases[slot] == mark.segment_base:
            return mark
        return Mark(mark.offset, self._bases[slot], self._place_of(self._segments[slot], mark.offset))

    def _place_of(self, segment: Segment, offset: int) -> int:
        """Where in the segment the batch with `offset` begins."""
        position = self._known_place_of(segment, offset)
        if position is not None:
            return position
        return self._segment_files.place_of(segment, offset)

    def _result(
        self, segment: Segment, position: int, data: bytes | memoryview, offset: int
    ) -> tuple[bytes | memoryview, int]:
        """Return these bytes and the offset after them; remember its place, where a consumer's next fetch begins."""
        places = self._places
        if offset not in places and len(places) >= _REMEMBERED_PLACES_MAX:
            del places[next(iter(places))]
        places[offset] = (segment.base_offset, position + len(data))
        return data, offset


class Watcher:
    """The object to tell when the readable part of a partition has grown, or the partition was deleted."""

    __slots__ = ()

    def moved(self, partition: PartitionLog) -> None:
        raise NotImplementedError
