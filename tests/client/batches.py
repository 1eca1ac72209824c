"""Strategies for logs as a broker may hold them: compressed, compacted, transactional, stamped by the log."""

from dataclasses import dataclass, field, replace

from crc32c import crc32c
from hypothesis import strategies as st

from semel.wire.batch import (
    APPEND_TIME_BIT,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    control_batch,
)
from semel.wire.records import CODECS, Record, compressed, varint

TIME_MS = 1_700_000_000_000
TIMES_MS = st.integers(-(10**12), 10**13)

byte_strings = st.binary(max_size=200)
nullable = st.none() | byte_strings
headers = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3)
records = st.builds(Record, nullable, nullable, headers, TIMES_MS)


@dataclass
class Log:
    """What a broker would answer to a fetch: batches, and the transactions among them that were aborted."""

    encoded: bytearray = field(default_factory=bytearray)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0


@dataclass(frozen=True)
class Shape:
    """How a batch is written, but for its records."""

    codec: str = "none"
    append_time: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


def batch_of(kept: list[tuple[int, Record]], base_offset: int, last_offset_delta: int, shape: Shape) -> bytes:
    """One batch with these records at these distances from its base: what compaction left of it."""
    base_time_ms = kept[0][1].timestamp_ms if kept else TIME_MS
    encoded = b"".join(_encoded(record, delta, record.timestamp_ms - base_time_ms) for delta, record in kept)
    attributes = CODECS.index(shape.codec)
    attributes |= APPEND_TIME_BIT if shape.append_time else 0
    attributes |= TRANSACTIONAL_BIT if shape.transactional else 0
    payload = compressed(attributes, encoded)
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload)
    times = base_time_ms, TIME_MS if shape.append_time else max((one.timestamp_ms for _, one in kept), default=-1)
    claim = shape.producer_id, shape.producer_epoch, shape.base_sequence
    head = HEADER.pack(base_offset, length, 0, MAGIC, 0, attributes, last_offset_delta, *times, *claim, len(kept))
    batch = bytearray(head + payload)
    return bytes(with_checksum(batch))


def with_checksum(batch: bytearray) -> bytearray:
    CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def _encoded(record: Record, offset_delta: int, time_delta_ms: int) -> bytes:
    body = b"\0" + varint(time_delta_ms) + varint(offset_delta) + _bytes(record.key) + _bytes(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _bytes(name.encode()) + _bytes(value)
    return varint(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


shapes = st.builds(
    Shape,
    codec=st.sampled_from(CODECS),
    append_time=st.booleans(),
    producer_id=st.sampled_from([-1, 7, 8, 2**62]),
    producer_epoch=st.integers(0, 3),
    base_sequence=st.integers(0, 5) | st.integers(2**31 - 5, 2**31 - 1),
    transactional=st.booleans(),
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches of several producers, some in transactions that end either way or have not ended."""
    log = Log(next_offset=draw(st.integers(0, 10) | st.integers(2**40, 2**40 + 10)))
    open_since: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 8))):
        shape = draw(shapes)
        if shape.producer_id < 0:
            shape = replace(shape, producer_epoch=-1, base_sequence=-1, transactional=False)
        if open_since and draw(st.integers(0, 3)) == 0:
            _end(draw, log, open_since)
        # What compaction took out leaves holes, before the first record and behind the last one too.
        written = draw(st.lists(st.none() | records, min_size=1, max_size=12))
        kept = [(delta, record) for delta, record in enumerate(written) if record is not None]
        log.encoded += batch_of(kept, log.next_offset, len(written) - 1, shape)
        if shape.transactional:
            open_since.setdefault(shape.producer_id, log.next_offset)
        log.next_offset += len(written) + draw(st.integers(0, 2))
    while open_since and draw(st.booleans()):
        _end(draw, log, open_since)
    # Those that are still open when the answer ends may have been aborted behind it.
    for producer_id, first_offset in open_since.items():
        if draw(st.booleans()):
            log.aborted.append((producer_id, first_offset))
    log.aborted = draw(st.permutations(log.aborted))
    return log


def _end(draw: st.DrawFn, log: Log, open_since: dict[int, int]) -> None:
    producer_id = draw(st.sampled_from(sorted(open_since)))
    first_offset = open_since.pop(producer_id)
    is_committed = draw(st.booleans())
    if not is_committed:
        log.aborted.append((producer_id, first_offset))
    log.encoded += control_batch(producer_id, 0, log.next_offset, TIME_MS, is_committed)
    log.next_offset += 1
