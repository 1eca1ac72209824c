"""Whole record batches: the command line, the pipeline and the tests write records with this, and read them back.

For Produce and Fetch the broker only reads a batch's header (`semel.wire.batch`) and passes the rest on. Here the
records are decompressed and read one by one, slowly and with a limit; the broker needs this only for the times of
records, to find an offset by time, and in compaction. Only format 2 is known. This file must never be imported by the
path that serves Fetch, nor by that of Produce except for compacted topics.
"""

import mmap
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from semel.wire.batch import (
    APPEND_TIME_BIT,
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    close_batch,
    read_header,
)
from semel.wire.checksum import crc32c
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer

# Sorted by their numbers in a batch's attributes.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# The compression levels, if a codec has any. For lz4 the levels up to 2 are the fast ones, and from 12 on all are the
# same.
LEVELS: Final = {"gzip": range(-1, 10), "lz4": range(18), "zstd": range(-131072, 23)}

# The decompressed size of a batch is limited to this; Kafka's own default for a whole fetch answer is 50 MiB.
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024

# Java's snappy streams: this magic, two versions, then blocks with their sizes. Other clients send one bare block.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16

# A 64-bit number in pieces of seven bits.
_VARINT_BYTES_MAX: Final = 10

# A time has 64 bits, one of them for the sign.
_TIME_BITS_MAX: Final = 63

_GZIP_WINDOW_BITS: Final = 31
# How many bytes are decompressed or copied at a time, while other threads wait.
_PIECE_BYTES: Final = 1024 * 1024
# The defaults of Kafka's clients.
_LZ4_LEVEL: Final = 0
_ZSTD_LEVEL: Final = 3


class Record(NamedTuple):
    """One record. `decode_batches` fills in the offset; `encode_batch` numbers the records itself."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0
    offset: int = 0


class Batch(NamedTuple):
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[Record]

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & CODEC_MASK]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    codec: str = "none",
) -> bytearray:
    """One batch with these records at consecutive offsets, with its checksum."""
    base_timestamp_ms = records[0].timestamp_ms if records else -1
    encoded = bytearray()
    for offset_delta, record in enumerate(records):
        _encode_record(encoded, record, offset_delta, record.timestamp_ms - base_timestamp_ms)
    attributes = CODECS.index(codec)
    payload = compressed(attributes, encoded)
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    return sealed(
        payload,
        record_count=len(records),
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max((record.timestamp_ms for record in records), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def sealed(
    payload: Buffer,
    *,
    record_count: int,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    """A batch of records that are already encoded, and compressed as its attributes say."""
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        record_count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return close_batch(header, payload)


def decode_batches(buffer: Buffer, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Batch]:
    """The batches that follow one another in `buffer`, as in a fetch answer or a segment.

    A last batch that is not complete is left out, because a fetch answer may end in the middle of one.
    """
    view = memoryview(buffer)
    at = 0
    while len(view) - at >= LENGTH_PREFIX_BYTES:
        end = _end_of(view, at)
        if end > len(view):
            return
        yield _decode_batch(view[at:end], decompressed_bytes_max)
        at = end


def next_offset(buffer: Buffer) -> int:
    """The offset after the last whole batch in `buffer`; of the batches before it, only format and length are
    checked.
    """
    last, at = -1, 0
    while len(buffer) - at >= HEADER_BYTES:
        _check_format(buffer[at + MAGIC_POSITION])
        end = _end_of(buffer, at)
        if end > len(buffer):
            break
        last, at = at, end
    if last < 0:
        raise ProtocolError(f"not one whole batch in {len(buffer)} bytes")
    return read_header(buffer, last).next_offset


def closed_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Where each whole batch in `buffer` begins, and its header. Checksums are checked; the records stay compressed."""
    view = memoryview(buffer)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = read_header(view, at)
        _check_format(header.magic)
        end = _end_of(view, at)
        if end > len(view):
            return
        if crc32c(view[at + CHECKED_FROM : end]) != header.checksum:
            raise ProtocolError(f"the batch at offset {header.base_offset} does not match its checksum")
        yield at, header
        at = end


def _end_of(buffer: Buffer, at: int) -> int:
    """Where the batch at `at` ends, by its own length; this may be after the end of the buffer."""
    length: int = LENGTH.unpack_from(buffer, at)[0]
    if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise ProtocolError(f"a batch length of {length} does not hold a batch header")
    return at + LENGTH_PREFIX_BYTES + length


def _check_format(magic: int) -> None:
    if magic != MAGIC:
        raise ProtocolError(f"a batch of format {magic}; only format {MAGIC} is known")


def opened(batch: Buffer, attributes: int, decompressed_bytes_max: int) -> bytes:
    """The decompressed records of one batch; ProtocolError if they are too large or cannot be decompressed."""
    return bytes(opened_in_place(batch, attributes, decompressed_bytes_max))


def opened_in_place(batch: Buffer, attributes: int, decompressed_bytes_max: int) -> bytes | memoryview:
    """The same without a copy, which would make other threads wait, for a caller that only reads the records."""
    payload = bytes(memoryview(batch)[HEADER_BYTES:])
    codec = attributes & CODEC_MASK
    if codec >= len(CODECS):
        raise ProtocolError(f"a batch is compressed by codec {codec}, and there is no such codec")
    return _decompress(CODECS[codec], payload, decompressed_bytes_max) if codec else payload


def record_times(batch: Buffer, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of one batch whose checksum has been checked before.

    The rest of each record is not read, so this takes a fraction of the time of `decode_batches`.
    """
    header = read_header(batch)
    payload = opened(batch, header.attributes, decompressed_bytes_max)
    append_time_ms = header.max_timestamp if header.attributes & APPEND_TIME_BIT else None
    at = 0
    try:
        while at < len(payload):
            size, at = read_varint(payload, at)
            if size <= 0:
                raise ProtocolError(f"a record of {size} bytes")
            end = at + size
            timestamp_delta, at = read_varint(payload, at + 1)
            offset_delta, _ = read_varint(payload, at)
            timestamp_ms = header.base_timestamp + timestamp_delta if append_time_ms is None else append_time_ms
            if not 0 <= offset_delta <= header.last_offset_delta or timestamp_ms.bit_length() > _TIME_BITS_MAX:
                raise ProtocolError(f"a record {offset_delta} after offset {header.base_offset}, at {timestamp_ms} ms")
            yield header.base_offset + offset_delta, timestamp_ms
            at = end
    except IndexError as error:
        raise ProtocolError(f"a record in the batch at offset {header.base_offset}: {error}") from error


def _decode_batch(batch: memoryview, decompressed_bytes_max: int) -> Batch:
    (
        base_offset,
        _,
        leader_epoch,
        magic,
        checksum,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER.unpack_from(batch)
    _check_format(magic)
    if crc32c(batch[CHECKED_FROM:]) != checksum:
        raise ProtocolError(f"the batch at offset {base_offset} does not match its checksum")
    payload = opened(batch, attributes, decompressed_bytes_max)
    # If the broker sets the time (LogAppendTime), it sets one time for the whole batch.
    append_time_ms = max_timestamp_ms if attributes & APPEND_TIME_BIT else None
    records = _decode_records(payload, record_count, base_offset, base_timestamp_ms, append_time_ms)
    return Batch(
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        records,
    )


def _decode_records(
    payload: bytes, record_count: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> list[Record]:
    records = []
    at = 0
    try:
        for _ in range(record_count):
            size, at = read_varint(payload, at)
            end = at + size
            if size < 0 or end > len(payload):
                raise ProtocolError(f"a record of {size} bytes where {len(payload) - at} bytes are left")
            # One byte of attributes, none of them in use.
            timestamp_delta, at = read_varint(payload, at + 1)
            offset_delta, at = read_varint(payload, at)
            key, at = _read_bytes(payload, at)
            value, at = _read_bytes(payload, at)
            header_count, at = read_varint(payload, at)
            if header_count < 0 or header_count > size:
                raise ProtocolError(f"a record of {size} bytes announces {header_count} headers")
            headers = []
            for _ in range(header_count):
                name, at = _read_bytes(payload, at)
                if name is None:
                    raise ProtocolError("a record header without a name")
                header_value, at = _read_bytes(payload, at)
                # Kafka accepts any bytes as a name, and a person who looks for an error has to see the record.
                headers.append((name.decode(errors="backslashreplace"), header_value))
            if at != end:
                raise ProtocolError(f"a record ends at byte {at} and announced byte {end}")
            timestamp_ms = base_timestamp_ms + timestamp_delta if append_time_ms is None else append_time_ms
            records.append(Record(value, key, headers, timestamp_ms, base_offset + offset_delta))
    except IndexError as error:
        raise ProtocolError(f"a record in the batch at offset {base_offset}: {error}") from error
    if at != len(payload):
        raise ProtocolError(f"{len(payload) - at} bytes follow the last record of the batch at offset {base_offset}")
    return records


def read_varint(buffer: bytes, at: int) -> tuple[int, int]:
    """A signed number, zigzag: 0, -1, 1, -2, ..."""
    byte = buffer[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    value = byte & 0x7F
    for place in range(1, _VARINT_BYTES_MAX):
        byte = buffer[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at + place + 1
    raise ProtocolError("a variable-length number is longer than ten bytes")


def _read_bytes(buffer: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(buffer, at)
    if size == -1:
        return None, at
    end = at + size
    if size < 0 or end > len(buffer):
        raise ProtocolError(f"{size} bytes where {len(buffer) - at} are left")
    return buffer[at:end], end


def _encode_record(encoded: bytearray, record: Record, offset_delta: int, timestamp_delta_ms: int) -> None:
    body = bytearray(1)
    body += varint(timestamp_delta_ms) + varint(offset_delta) + _bytes(record.key) + _bytes(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _bytes(name.encode()) + _bytes(value)
    encoded += varint(len(body)) + body


def varint(value: int) -> bytes:
    """A signed number, encoded as in records: zigzag, then seven bits to a byte."""
    value = value << 1 ^ value >> 63
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def compressed(attributes: int, payload: Buffer, level: int | None = None) -> Buffer:
    """The records, compressed as a batch with these attributes has them; `level` is one of the codec's `LEVELS`."""
    codec = CODECS[attributes & CODEC_MASK]
    if codec == "none":
        return payload
    if codec == "gzip":
        return zlib.compress(payload, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WINDOW_BITS)
    # Imported only here, because a broker hardly ever needs it.
    import cramjam

    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(payload))
    if codec == "lz4":
        # Java refuses frames whose blocks depend on each other, as those of `cramjam.lz4.compress` do.
        frame = cramjam.lz4.Compressor(
            level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        frame.compress(bytes(payload))
        return bytes(frame.finish())
    return bytes(cramjam.zstd.compress(payload, level=_ZSTD_LEVEL if level is None else level))


def _decompress(codec: str, payload: bytes, bytes_max: int) -> bytes | memoryview:
    if codec == "gzip":
        return _gunzip(payload, bytes_max)
    import cramjam

    try:
        if codec != "snappy":
            return _grow(getattr(cramjam, codec).decompress_into, cramjam.DecompressionError, payload, bytes_max)
        if payload.startswith(_XERIAL_MAGIC):
            return _unsnap_blocks(cramjam.snappy, payload, bytes_max)
        return _unsnap(cramjam.snappy, payload, bytes_max)
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"records that are not {codec}, or more than {bytes_max} bytes: {error}") from error


def _memory_for(size: int) -> memoryview:
    """Memory to decompress to. It is not cleared: the kernel provides empty pages as they are written to."""
    if size <= _PIECE_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _gunzip(payload: bytes, bytes_max: int) -> bytes | memoryview:
    inflater = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    records: memoryview | None = None
    size = at = 0
    left = b""
    try:
        while not inflater.eof:
            if not left:
                left = payload[at : at + _PIECE_BYTES]
                at += _PIECE_BYTES
            piece = inflater.decompress(left, _PIECE_BYTES)
            if size + len(piece) > bytes_max or not (piece or left):
                raise ProtocolError(f"gzip records that are cut short, or more than {bytes_max} bytes")
            left = inflater.unconsumed_tail
            if records is None:
                if inflater.eof:
                    return piece
                records = _memory_for(bytes_max)
            records[size : size + len(piece)] = piece
            size += len(piece)
    except zlib.error as error:
        raise ProtocolError(f"records that are not gzip: {error}") from error
    return b"" if records is None else records[:size]


def _grow(
    decompress_into: Callable[[bytes, Buffer], int], refusal: type[Exception], payload: bytes, bytes_max: int
) -> bytes | memoryview:
    """Decompress into ever larger buffers, because the size of the content may be missing in lz4 and zstd."""
    size = min(bytes_max, max(4 * len(payload), 4096))
    while True:
        records = _memory_for(size)
        try:
            return records[: decompress_into(payload, records)]
        except refusal:
            if size >= bytes_max:
                raise
            size = min(bytes_max, 4 * size)


def _unsnap(snappy: Any, block: bytes, bytes_max: int) -> memoryview:
    records = _memory_for(_unsnapped_bytes(snappy, block, bytes_max))
    return records[: snappy.decompress_raw_into(block, records)]


def _unsnap_blocks(snappy: Any, payload: bytes, bytes_max: int) -> memoryview:
    records = _memory_for(bytes_max)
    at, end = _XERIAL_HEADER_BYTES, 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        at += 4
        if size > len(payload) - at:
            raise ProtocolError(f"a snappy block of {size} bytes where {len(payload) - at} bytes are left")
        block = payload[at : at + size]
        block_end = end + _unsnapped_bytes(snappy, block, bytes_max - end)
        snappy.decompress_raw_into(block, records[end:block_end])
        at, end = at + size, block_end
    return records[:end]


def _unsnapped_bytes(snappy: Any, block: bytes, bytes_max: int) -> int:
    size = int(snappy.decompress_raw_len(block))
    if size > bytes_max:
        raise ProtocolError(f"a snappy block of {size} bytes is larger than {bytes_max}")
    return size
