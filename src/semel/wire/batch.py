"""The header of a record batch: 61 bytes.

Clients send records in batches of format 2 (the only format that carries a producer's identity). The broker reads the
header, checks it (`core.batch_checks`), and writes the base offset and the leader epoch into it. It walks the records
(`core.record_walk`) if they are not compressed. Only compaction, a compacted topic's check for keys, and the console
decompress them.

    offset size field                    covered by the checksum
         0    8 base offset              no: the broker sets it
         8    4 length of what follows   no
        12    4 leader epoch             no: the broker sets it
        16    1 magic (2)                no
        17    4 CRC-32C of the rest      no
        21    2 attributes               yes, and all that follows
        23    4 last offset delta
        27    8 base timestamp
        35    8 max timestamp
        43    8 producer id
        51    2 producer epoch
        53    4 base sequence
        57    4 record count
        61      records
"""

import struct
from typing import Final, NamedTuple

from semel.wire.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
# The bytes that the length field does not count: itself and the base offset before it.
LENGTH_PREFIX_BYTES: Final = 12
MAGIC_POSITION: Final = 16
CHECKSUM_POSITION: Final = 17
CHECKED_FROM: Final = 21
# The low byte of the attributes, which contains all bits in use.
ATTRIBUTES_POSITION: Final = 22
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
# The base timestamp is then the time from which compaction may remove the tombstones in the batch.
HORIZON_BIT: Final = 0x40

# The first bytes of compressed records, for the codecs that have a signature. Without this check, records that only
# claim to be compressed would be stored, and would stop every consumer that reaches them.
CODEC_SIGNATURES: Final = {1: b"\x1f\x8b", 3: b"\x04\x22\x4d\x18", 4: b"\x28\xb5\x2f\xfd"}
CODEC_LAST: Final = 4
# length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each at least.
RECORD_BYTES_MIN: Final = 7

BASE_OFFSET: Final = struct.Struct(">q")
# The length field alone, which says where the next batch begins.
LENGTH: Final = struct.Struct(">8xi")
# The one record of a control batch: its length, attributes and deltas, a key of 4 bytes (version, type), a value of 6
# (version, coordinator epoch), no headers. All lengths are so small that they are one byte.
_CONTROL_RECORD: Final = struct.Struct(">bbbbbhhbhib")
_ABORT_TYPE: Final = 0
_COMMIT_TYPE: Final = 1

LEADER_EPOCH: Final = struct.Struct(">i")
LEADER_EPOCH_POSITION: Final = 12
CHECKSUM: Final = struct.Struct(">I")


# The constructor that a NamedTuple makes for itself takes several times as long.
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """A batch's header, field by field, in the order of the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def batch_bytes(self) -> int:
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the codec that compressed the records; 0 for none."""
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        """Whether `max_timestamp`, the broker's time of append, replaces the timestamps of all records."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a batch that was checked before (it comes from our own disk); this verifies nothing."""
    return _new(BatchHeader, HEADER.unpack_from(buffer, position))


def says_transactional(batch: Buffer) -> bool:
    """Whether the batch says that it belongs to a transaction. The bytes need not be a batch."""
    return len(batch) > ATTRIBUTES_POSITION and bool(batch[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT)


def control_batch(
    producer_id: int, producer_epoch: int, base_offset: int, at_ms: int, committed: bool, coordinator_epoch: int = 0
) -> bytearray:
    """The marker that ends a producer's transaction in a partition: one control record, which consumers never
    return.
    """
    record = _CONTROL_RECORD.pack(
        _zigzag(_CONTROL_RECORD.size - 1),
        0,
        0,
        0,
        _zigzag(4),
        0,
        _COMMIT_TYPE if committed else _ABORT_TYPE,
        _zigzag(6),
        0,
        coordinator_epoch,
        0,
    )
    return close_batch(control_header(producer_id, producer_epoch, base_offset, 0, at_ms), record)


def commits(marker: Buffer) -> bool:
    """Whether this control batch commits its producer's transaction."""
    return bool(_CONTROL_RECORD.unpack_from(marker, HEADER_BYTES)[6] == _COMMIT_TYPE)


def control_header(
    producer_id: int, producer_epoch: int, base_offset: int, leader_epoch: int, at_ms: int
) -> BatchHeader:
    """The header of such a marker, without its checksum."""
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + _CONTROL_RECORD.size
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    place = base_offset, length, leader_epoch, MAGIC, 0, attributes, 0
    return BatchHeader(*place, at_ms, at_ms, producer_id, producer_epoch, NO_SEQUENCE, 1)


def close_batch(header: BatchHeader, records: Buffer) -> bytearray:
    """A batch made of a header and encoded records; sets the length and the checksum in the header."""
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records)
    batch = bytearray(HEADER.pack(header.base_offset, length, *header[2:]))
    batch += records
    CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def _zigzag(length: int) -> int:
    """The one byte of a small number as a zigzag-encoded varint, as the record format has it."""
    return length << 1


def place(batch: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int = 0) -> BatchHeader:
    """Write its offset and leader epoch into a batch. The checksum does not cover these two fields."""
    BASE_OFFSET.pack_into(batch, 0, base_offset)
    LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)
    return _new(BatchHeader, (base_offset, header.length, leader_epoch, *header[3:]))


def stamp(batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Write the broker's time into a batch (message.timestamp.type=LogAppendTime), and its new checksum."""
    attributes = header.attributes | APPEND_TIME_BIT
    struct.pack_into(">h", batch, CHECKED_FROM, attributes)
    return correct(batch, header._replace(attributes=attributes), now_ms)


def correct(batch: bytearray | memoryview, header: BatchHeader, latest_ms: int) -> BatchHeader:
    """Write the time of the latest record into a batch, and its new checksum."""
    struct.pack_into(">q", batch, MAX_TIMESTAMP_POSITION, latest_ms)
    checksum = crc32c(memoryview(batch)[CHECKED_FROM:])
    CHECKSUM.pack_into(batch, CHECKSUM_POSITION, checksum)
    return header._replace(max_timestamp=latest_ms, checksum=checksum)
