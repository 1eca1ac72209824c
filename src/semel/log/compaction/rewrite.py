"""Compacts one batch: keeps it as it is, rewrites it with fewer records, or drops it.

Offsets never change. A rewritten batch keeps the base offset, last offset delta, producer, sequence and codec of its
header; the number of records, the latest timestamp, the length and the checksum change.

A tombstone, and the marker of a transaction without remaining records, stay for a while, so that consumers see them.
Their batch says until when, as in Apache Kafka (KIP-534): one bit of the attributes says that the base timestamp is the
time from which they may be removed, and not the first record's time. The timestamps of the records are still counted
from it.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from semel.log.compaction.keys import PLAIN_KEY_BYTES_MAX, digest
from semel.log.compaction.records import records_in, timestamp_delta
from semel.log.core.values import value
from semel.wire.batch import (
    APPEND_TIME_BIT,
    HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    close_batch,
)
from semel.wire.errors import ProtocolError
from semel.wire.records import compressed, opened, varint

NO_HORIZON: Final = -1
# The horizon of a segment with a tombstone whose time is up, and which the next pass can remove; no pass is made for it
# alone.
AT_NEXT_PASS: Final = 0
# Times and their differences have 64 bits, one of them for the sign.
TIME_MAX: Final = 2**63 - 1


@value
class Rules:
    """The parameters of one pass over a partition."""

    now_ms: int
    # How long a tombstone stays after the pass that found it to be the last record of its key.
    delete_retention_ms: int
    # The last offset of the pass: its record stays even if it is a tombstone whose time is up, because otherwise a
    # consumer that reads to the end would never know that it has arrived.
    last_offset: int
    # A batch that is larger than this after decompression stays as it is.
    opened_bytes_max: int

    @property
    def horizon_ms(self) -> int:
        """The time until which tombstones stay that this pass finds."""
        return min(self.now_ms + self.delete_retention_ms, TIME_MAX)


def horizon_of(header: BatchHeader) -> int:
    """When the tombstones in a batch may be removed; NO_HORIZON if no pass has seen them yet, or there are none."""
    return header.base_timestamp if header.attributes & HORIZON_BIT else NO_HORIZON


def has_gone_by(horizon_ms: int, now_ms: int) -> bool:
    return horizon_ms != NO_HORIZON and horizon_ms <= now_ms


class _Survivors(NamedTuple):
    """The remaining records of a batch: their stretches among all, their number, and whether one is a tombstone."""

    stretches: list[tuple[int, int]]
    record_count: int
    has_deletion: bool


def without_superseded(
    header: BatchHeader, batch: Buffer, offsets: Mapping[bytes, int], rules: Rules, *, marks_may_go: bool
) -> Buffer | None:
    """The batch with its remaining records, given the last offset of each key; None if no record remains.

    If nothing changes, the same object is returned. ProtocolError if the batch cannot be decompressed. A tombstone
    whose time is up is removed if it is in `offsets` and `marks_may_go` is true, which means that all batches before
    this one were opened: only then all records that it deletes have been removed.
    """
    records = opened(batch, header.attributes, rules.opened_bytes_max)
    survivors = _surviving(header, records, offsets, rules, marks_may_go)
    if survivors.record_count == 0:
        return None
    is_marked = horizon_of(header) != NO_HORIZON
    horizon_ms = rules.horizon_ms if survivors.has_deletion and not is_marked else NO_HORIZON
    if survivors.record_count == header.record_count and horizon_ms == NO_HORIZON:
        return batch
    return _rebuilt(header, records, survivors, horizon_ms)


def marker_with_horizon(header: BatchHeader, batch: Buffer, rules: Rules) -> Buffer:
    """The marker of a transaction without remaining records, with the time from which it may be removed."""
    records = opened(batch, header.attributes, rules.opened_bytes_max)
    return _rebuilt(header, records, _Survivors([(0, len(records))], header.record_count, True), rules.horizon_ms)


def _surviving(
    header: BatchHeader, records: bytes, offsets: Mapping[bytes, int], rules: Rules, marks_may_go: bool
) -> _Survivors:
    base_offset = header.base_offset
    last_delta = rules.last_offset - base_offset
    is_late = marks_may_go and has_gone_by(horizon_of(header), rules.now_ms)
    last_offset_of = offsets.get
    stretches: list[tuple[int, int]] = []
    stretch_begin = stretch_end = count = 0
    has_deletion = False
    for begin, end, offset_delta, key, has_value in records_in(records, header):
        if key is None:
            continue
        last_offset = last_offset_of(key if len(key) <= PLAIN_KEY_BYTES_MAX else digest(key), -1)
        if last_offset > base_offset + offset_delta:
            continue
        if not has_value:
            if is_late and offset_delta != last_delta and last_offset == base_offset + offset_delta:
                continue
            has_deletion = True
        count += 1
        if begin != stretch_end:
            stretches.append((stretch_begin, stretch_end))
            stretch_begin = begin
        stretch_end = end
    stretches.append((stretch_begin, stretch_end))
    return _Survivors(stretches, count, has_deletion)


def _rebuilt(header: BatchHeader, records: bytes, survivors: _Survivors, new_horizon_ms: int) -> bytearray:
    """A batch of the surviving records, with the new horizon if there is one."""
    latest = NO_TIMESTAMP
    is_marked_anew = new_horizon_ms != NO_HORIZON
    base_timestamp = new_horizon_ms if is_marked_anew else header.base_timestamp
    kept = bytearray()
    for begin, end in survivors.stretches:
        if not is_marked_anew:
            kept += memoryview(records)[begin:end]
        for attributes_at, delta, delta_end, record_end in _timestamps(records, begin, end):
            timestamp = header.base_timestamp + delta
            latest = max(latest, timestamp)
            if is_marked_anew:
                body = records[attributes_at : attributes_at + 1] + varint(timestamp - base_timestamp)
                kept += varint(len(body) + record_end - delta_end) + body
                kept += memoryview(records)[delta_end:record_end]
            if max(abs(timestamp), abs(timestamp - base_timestamp)) > TIME_MAX:
                raise ProtocolError(f"a record in the batch at offset {header.base_offset} of time {timestamp}")
    rewritten = header._replace(
        attributes=header.attributes | (HORIZON_BIT if is_marked_anew else 0),
        base_timestamp=base_timestamp,
        # If the broker set the time (LogAppendTime), it set one time for all records.
        max_timestamp=header.max_timestamp if header.attributes & APPEND_TIME_BIT else latest,
        record_count=survivors.record_count,
    )
    return close_batch(rewritten, compressed(header.attributes, kept))


def _timestamps(records: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """For each record of a stretch: where its attributes are, its timestamp delta, where the delta ends, and where the
    record ends.
    """
    while begin < end:
        record_bytes, attributes_at, delta, delta_end = timestamp_delta(records, begin)
        begin = attributes_at + record_bytes
        yield attributes_at, delta, delta_end, begin
