"""Histories of a compacted partition in the smallest form, the segments that they make, and what must be left of them.

The model is as naive as can be: the list of all records, each with what is known of it, filtered by the rules as they
are written down. It must never know how the cleaner does it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from read_committed import batches_in, unaborted
from semel.log.compaction.passes import Pass
from semel.log.compaction.rewrite import Rules
from semel.log.storage.files import Files, MemoryFiles
from semel.log.storage.segment import Segment
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.batch import (
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    control_batch,
    read_header,
)
from semel.wire.records import Record, decode_batches, encode_batch

DIRECTORY = "topics/0-orders/0"
NOW_MS = 1_700_000_000_000
RETENTION_MS = 1_000
KEY_BYTES = 1_000_000


class Kept(NamedTuple):
    """One record as a consumer sees it; a marker has neither key nor value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    is_marker: bool


@dataclass
class History:
    """What was appended to one partition, in segments."""

    files: Files = field(default_factory=MemoryFiles)
    segments: list[Segment] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    next_offset: int = 0
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.segment_files = SegmentFiles(self.files)
        self.open: dict[int, int] = {}
        self.roll()

    def roll(self) -> None:
        if self.segments and self.segments[-1].size == 0:
            return
        if self.segments:
            self.segment_files.seal(self.segments[-1])
        self.segments.append(Segment(DIRECTORY, self.next_offset, self.now_ms))

    def append(self, records: Sequence[Record], codec: str = "none", producer_id: int = -1) -> None:
        """A batch; one with a producer is part of that producer's transaction."""
        if producer_id >= 0:
            self.open.setdefault(producer_id, self.next_offset)
        self.append_batch(
            encode_batch(
                records,
                base_offset=self.next_offset,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=0 if producer_id >= 0 else -1,
                transactional=producer_id >= 0,
            )
        )

    def append_payload(self, payload: bytes, record_count: int) -> None:
        """A batch with anything at all behind its header."""
        batch = encode_batch([Record()] * record_count, base_offset=self.next_offset)[:HEADER_BYTES] + payload
        batch[8:12] = (len(batch) - LENGTH_PREFIX_BYTES).to_bytes(4, "big")
        CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[CHECKED_FROM:]))
        self.append_batch(batch)

    def end(self, producer_id: int, committed: bool) -> None:
        """The producer's transaction comes to its end."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        if not committed:
            self.aborted.append((producer_id, first_offset, self.next_offset))
        self.append_batch(control_batch(producer_id, 0, self.next_offset, self.now_ms, committed))

    def end_all(self) -> None:
        for producer_id in list(self.open):
            self.end(producer_id, committed=True)

    def append_batch(self, batch: bytearray) -> None:
        segment = self.segments[-1]
        header = read_header(batch)
        self.segment_files.write(segment, [batch], segment.size)
        segment.note(header)
        self.next_offset = header.next_offset

    @property
    def sealed(self) -> list[Segment]:
        """The segments that no transaction reaches into that may still be aborted."""
        stable = min(self.open.values(), default=self.next_offset)
        return [segment for segment in self.segments[:-1] if segment.next_offset <= stable]

    def clean(
        self, cleaned_until: int = 0, *, key_bytes: int = KEY_BYTES, segment_bytes: int = 4096, **rules: int
    ) -> Pass:
        """One pass over all sealed segments, its output put in their places."""
        done = self.begin(cleaned_until, key_bytes=key_bytes, segment_bytes=segment_bytes, **rules)
        done.survey()
        for group in done.groups():
            rewritten = done.rewrite(group)
            if rewritten.is_changed:
                at = self.segments.index(rewritten.old[0])
                new = [] if rewritten.new is None else [rewritten.new]
                self.segments[at : at + len(rewritten.old)] = new
            else:
                rewritten.forget_horizons()
            end = group[-1].next_offset
            self.aborted = [entry for entry in self.aborted if entry[2] >= end]
        return done

    def begin(
        self, cleaned_until: int = 0, *, key_bytes: int = KEY_BYTES, segment_bytes: int = 4096, **rules: int
    ) -> Pass:
        settled = Rules(
            **{
                "now_ms": self.now_ms,
                "delete_retention_ms": RETENTION_MS,
                "last_offset": self.sealed[-1].next_offset - 1,
                "opened_bytes_max": 1_000_000,
                **rules,
            }
        )
        return Pass(
            self.files,
            DIRECTORY,
            self.sealed,
            cleaned_until,
            self.spans,
            settled,
            key_bytes,
            segment_bytes,
            lambda: None,
        )

    def spans(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """The aborted transactions that reach into a stretch."""
        return [span for span in self.aborted if span[1] < end and span[2] >= begin]

    # -- what is there -------------------------------------------------------------------------------------------

    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches()]

    def batches(self) -> list[bytes]:
        found = []
        for segment in self.segments:
            if segment.size:
                found += batches_in(self.segment_files.file_of(segment).read_at(segment.size, 0))
        return found

    def records(self) -> list[Kept]:
        return list(records_of(self.batches()))

    def committed(self) -> list[Kept]:
        """What a consumer of committed records is shown, by the list of aborted transactions and the markers alone."""
        aborted = [(producer_id, first) for producer_id, first, _ in self.aborted]
        return list(records_of(unaborted(self.batches(), aborted)))


def records_of(batches: Iterable[bytes]) -> Iterable[Kept]:
    for stored in batches:
        header = read_header(stored)
        assert crc32c(memoryview(stored)[CHECKED_FROM:]) == header.checksum
        for batch in decode_batches(stored):
            assert batch.records or header.record_count == 0
            for record in batch.records:
                yield Kept(
                    record.offset,
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    tuple(record.headers),
                    batch.producer_id if batch.is_transactional else -1,
                    batch.is_control,
                )


def last_values(shown: Iterable[Kept]) -> dict[bytes, bytes]:
    """The table that a consumer builds who starts at the beginning."""
    table: dict[bytes, bytes] = {}
    for record in shown:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
