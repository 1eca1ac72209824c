"""The header of a record batch: what is accepted, what each lie is answered with, and that placing keeps it whole."""

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from refusal import refused
from semel.log.core.batch_checks import Sender, check_sent, check_timestamps
from semel.wire import refusals
from semel.wire.batch import (
    HEADER_BYTES,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    control_batch,
    place,
    read_header,
    stamp,
)
from semel.wire.refusals import Refused

BYTES_MAX = 1_048_588
SIGNATURES = {1: b"\x1f\x8b", 2: b"", 3: b"\x04\x22\x4d\x18", 4: b"\x28\xb5\x2f\xfd"}

# Written from the protocol's guide, apart from the code that is tested: name, place and kind of every field.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "checksum": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
NOT_COVERED = ("base_offset", "length", "leader_epoch", "magic", "checksum")


def build(records: bytes = bytes(7), **fields: int) -> bytearray:
    """A batch around these records, right in all that is not named in `fields`."""
    count = fields.get("record_count", 1)
    values = {
        "base_offset": 0,
        "length": 49 + len(records),
        "leader_epoch": -1,
        "magic": 2,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": 1000,
        "max_timestamp": 2000,
        "producer_id": 1000,
        "producer_epoch": 0,
        "base_sequence": 0,
        "record_count": count,
        **fields,
    }
    batch = bytearray(61) + records
    for name, value in values.items():
        position, kind = FIELDS[name]
        struct.pack_into(kind, batch, position, value)
    if "checksum" not in fields:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def field(batch: bytes | bytearray, name: str) -> int:
    position, kind = FIELDS[name]
    value: int = struct.unpack_from(kind, batch, position)[0]
    return value


def is_whole(batch: bytes | bytearray) -> bool:
    return field(batch, "checksum") == crc32c(bytes(batch[21:]))


int16 = st.integers(-(2**15), 2**15 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
number = st.integers(0, 2**31 - 1)
identity = st.one_of(
    st.fixed_dictionaries(
        {"producer_id": st.integers(0, 2**63 - 1), "producer_epoch": st.integers(0, 2**15 - 1), "base_sequence": number}
    ),
    st.fixed_dictionaries(
        {"producer_id": st.just(-1), "producer_epoch": int16, "base_sequence": st.integers(-(2**31), 2**31 - 1)}
    ),
)


@st.composite
def honest_batches(draw: st.DrawFn) -> bytearray:
    codec = draw(st.integers(0, 4))
    count = draw(st.integers(1, 50) if codec == 0 else st.integers(1, 2**31 - 1))
    records = SIGNATURES[codec] + draw(st.binary(max_size=30)) if codec else bytes(7 * count) + draw(st.binary())
    return build(
        records,
        record_count=count,
        attributes=codec | draw(st.sampled_from([0, 0x10])),
        base_offset=draw(int64),
        leader_epoch=draw(st.integers(-(2**31), 2**31 - 1)),
        base_timestamp=draw(int64),
        max_timestamp=draw(int64),
        **draw(identity),
    )


@given(honest_batches(), st.sampled_from([bytes, bytearray, memoryview]))
def test_every_honest_batch_is_accepted_and_every_field_read_from_its_place(batch: bytearray, kind: Any) -> None:
    header = check_sent(kind(batch), len(batch))
    assert header == BatchHeader(**{name: field(batch, name) for name in FIELDS})
    assert header == read_header(b"before" + batch, 6)
    assert header.batch_bytes == len(batch)


def test_a_header_has_sixty_one_bytes() -> None:
    assert HEADER_BYTES == 61 == FIELDS["record_count"][0] + 4


def test_what_a_batch_is_stands_in_its_attributes() -> None:
    assert not check_sent(build(), BYTES_MAX).is_transactional
    assert check_sent(build(attributes=0x10), BYTES_MAX).is_transactional
    assert read_header(build(attributes=0x20)).is_control
    assert not read_header(build(attributes=0x1F)).is_control


def test_the_next_offset_lies_behind_the_last_record() -> None:
    assert read_header(build(bytes(21), base_offset=40, record_count=3)).next_offset == 43


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        pytest.param(refusals.INVALID_RECORD, {"magic": 0}, id="format 0"),
        pytest.param(refusals.INVALID_RECORD, {"magic": 1}, id="format 1"),
        pytest.param(refusals.INVALID_RECORD, {"magic": 3}, id="a format to come"),
        pytest.param(refusals.INVALID_RECORD, {"magic": -1}, id="no format at all"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"length": 57}, id="longer than what came"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"length": 48}, id="shorter than a header"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"length": 0}, id="no length"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"length": -1}, id="a negative length"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"length": 2**31 - 1}, id="the largest length"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"checksum": 0}, id="a wrong checksum"),
        pytest.param(refusals.INVALID_RECORD, {"attributes": 0x20}, id="a control batch"),
        pytest.param(refusals.INVALID_RECORD, {"attributes": 0x30}, id="a marker of a transaction"),
        pytest.param(refusals.INVALID_RECORD, {"attributes": 0x40}, id="a time for marks of deletion to go"),
        pytest.param(refusals.INVALID_RECORD, {"record_count": 0}, id="no records"),
        pytest.param(refusals.INVALID_RECORD, {"record_count": -1}, id="fewer than no records"),
        pytest.param(
            refusals.INVALID_RECORD, {"record_count": -(2**31), "last_offset_delta": 2**31 - 1}, id="a wrapped count"
        ),
        pytest.param(refusals.INVALID_RECORD, {"last_offset_delta": 1}, id="offsets for more records than counted"),
        pytest.param(refusals.INVALID_RECORD, {"last_offset_delta": -1}, id="offsets for fewer records than counted"),
        pytest.param(refusals.INVALID_RECORD, {"record_count": 2}, id="more records than fit"),
        pytest.param(refusals.INVALID_RECORD, {"record_count": 2**31 - 1}, id="far more records than fit"),
        pytest.param(refusals.INVALID_RECORD, {"base_sequence": -1}, id="a producer without a sequence"),
        pytest.param(refusals.INVALID_RECORD, {"base_sequence": -(2**31)}, id="a sequence that wrapped negative"),
        pytest.param(refusals.INVALID_RECORD, {"producer_epoch": -1}, id="a producer without an epoch"),
        pytest.param(refusals.INVALID_RECORD, {"producer_id": -2}, id="an id that no producer can have"),
        pytest.param(refusals.INVALID_RECORD, {"producer_id": -(2**63)}, id="the most negative id"),
        pytest.param(refusals.INVALID_TIMESTAMP, {"attributes": 0x08}, id="the broker's kind of timestamp"),
        pytest.param(refusals.UNSUPPORTED_COMPRESSION_TYPE, {"attributes": 5}, id="compression 5"),
        pytest.param(refusals.UNSUPPORTED_COMPRESSION_TYPE, {"attributes": 7}, id="compression 7"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"attributes": 1}, id="gzip that is none"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"attributes": 3}, id="lz4 that is none"),
        pytest.param(refusals.CORRUPT_MESSAGE, {"attributes": 4}, id="zstd that is none"),
    ],
)
def test_a_batch_that_is_not_consistent_is_refused_with_the_error_for_it(error: int, fields: dict[str, int]) -> None:
    with refused(error):
        check_sent(build(**fields), BYTES_MAX)


def test_a_batch_without_the_last_byte_of_its_header_is_corrupt() -> None:
    with refused(refusals.CORRUPT_MESSAGE):
        check_sent(build()[: HEADER_BYTES - 1], BYTES_MAX)


def test_records_are_compressed_as_they_say_from_their_first_byte_on() -> None:
    """Or whoever reads that far would stop at them."""
    check_sent(build(b"\x1f\x8b" + bytes(20), attributes=1), BYTES_MAX)
    with refused(refusals.CORRUPT_MESSAGE):
        check_sent(build(b"\0\x1f\x8b" + bytes(20), attributes=1), BYTES_MAX)


def test_zstd_is_taken_only_in_versions_whose_readers_know_it() -> None:
    compressed = build(b"\x28\xb5\x2f\xfd" + bytes(20), attributes=4)
    check_sent(compressed, BYTES_MAX)
    with refused(refusals.UNSUPPORTED_COMPRESSION_TYPE):
        check_sent(compressed, BYTES_MAX, Sender(knows_zstd=False))


def test_two_batches_in_one_request_are_refused_as_such() -> None:
    with refused(refusals.INVALID_RECORD, "more than one record batch"):
        check_sent(build() + build(), BYTES_MAX)


def test_a_batch_may_have_exactly_as_many_bytes_as_the_topic_allows() -> None:
    batch = build()
    check_sent(batch, len(batch))
    with refused(refusals.MESSAGE_TOO_LARGE, r"68 bytes, max\.message\.bytes is 67"):
        check_sent(batch, len(batch) - 1)


def test_a_producer_hears_that_its_batch_is_too_large_before_anything_is_said_of_its_checksum() -> None:
    with refused(refusals.MESSAGE_TOO_LARGE):
        check_sent(build(checksum=0), 67)


def test_a_damaged_batch_is_called_damaged_whatever_its_fields_say() -> None:
    with refused(refusals.CORRUPT_MESSAGE):
        check_sent(build(checksum=0, attributes=0x20, record_count=0, base_sequence=-1), BYTES_MAX)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 34, 60])
def test_a_short_message_of_an_old_format_is_refused_for_good_not_called_corrupt(magic: int, size: int) -> None:
    with refused(refusals.INVALID_RECORD, f"format {magic}"):
        check_sent(build(magic=magic)[:size], BYTES_MAX)


@given(honest_batches(), st.data())
def test_a_batch_cut_anywhere_is_corrupt(batch: bytearray, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(batch) - 1))
    with refused(refusals.CORRUPT_MESSAGE):
        check_sent(batch[:size], BYTES_MAX)


@given(honest_batches(), st.data())
def test_no_flipped_bit_behind_the_checksum_goes_unnoticed(batch: bytearray, data: st.DataObject) -> None:
    bit = data.draw(st.integers(17 * 8, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    with refused(refusals.CORRUPT_MESSAGE):
        check_sent(batch, BYTES_MAX)


@given(honest_batches(), st.dictionaries(st.sampled_from([n for n in FIELDS if n != "length"]), st.integers()))
def test_any_fields_under_a_right_checksum_are_accepted_only_if_they_agree(
    honest: bytearray, changes: dict[str, int]
) -> None:
    batch = bytearray(honest)
    for name, value in changes.items():
        position, kind = FIELDS[name]
        bits = 8 * struct.calcsize(kind)
        unsigned = value % 2**bits
        struct.pack_into(kind.upper() if kind != ">b" else ">B", batch, position, unsigned)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    try:
        header = check_sent(batch, BYTES_MAX)
    except Refused:
        return
    assert header.magic == 2
    assert header.record_count > 0
    assert header.last_offset_delta == header.record_count - 1
    assert header.attributes & 0x68 == 0
    claim = header.producer_id, header.producer_epoch, header.base_sequence
    assert header.producer_id == NO_PRODUCER or min(claim) >= 0


@given(st.binary(max_size=200), st.sampled_from([bytes, bytearray, memoryview]))
def test_any_bytes_are_accepted_or_refused_and_nothing_else_happens(garbage: bytes, kind: Any) -> None:
    with pytest.raises(Refused):
        check_sent(kind(garbage), BYTES_MAX)


@given(st.binary(min_size=61, max_size=200), st.integers(0, 500))
def test_any_bytes_under_a_right_length_and_checksum_are_accepted_or_refused(garbage: bytes, bytes_max: int) -> None:
    batch = bytearray(garbage)
    struct.pack_into(">iib", batch, 8, len(batch) - 12, 0, 2)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    try:
        header = check_sent(batch, bytes_max)
    except Refused:
        return
    assert header.record_count > 0


def test_a_refusal_carries_its_message_for_people_and_its_number_for_clients() -> None:
    with pytest.raises(Refused) as caught:
        check_sent(b"", BYTES_MAX)
    assert caught.value.error == refusals.CORRUPT_MESSAGE
    assert str(caught.value) == caught.value.message == "a record batch has at least 61 bytes, this one has 0"


# Timestamps


@pytest.mark.parametrize(
    ("base_timestamp", "max_timestamp"),
    [(400, 500), (1000, 1000), (1000, 1200), (900, 1200), (NO_TIMESTAMP, NO_TIMESTAMP)],
)
def test_a_clock_within_the_bounds_is_accepted(base_timestamp: int, max_timestamp: int) -> None:
    check_timestamps(base_timestamp, max_timestamp, 1000, 600, 200)


def test_a_clock_too_far_ahead_is_refused() -> None:
    with refused(refusals.INVALID_TIMESTAMP, r"201 ms ahead, message\.timestamp\.after\.max\.ms is 200"):
        check_timestamps(1000, 1201, 1000, 600, 200)


def test_a_clock_too_far_behind_is_refused() -> None:
    with refused(refusals.INVALID_TIMESTAMP, r"601 ms late, message\.timestamp\.before\.max\.ms is 600"):
        check_timestamps(399, 1000, 1000, 600, 200)


# Placing and stamping


@given(honest_batches(), st.integers(0, 2**63 - 1))
def test_placing_a_batch_changes_its_offset_and_leader_epoch_and_nothing_else(batch: bytearray, offset: int) -> None:
    before = bytes(batch)
    header = place(memoryview(batch), read_header(batch), offset)
    assert header == read_header(batch)
    assert field(batch, "base_offset") == offset
    assert field(batch, "leader_epoch") == 0
    assert batch[8:12] == before[8:12]
    assert batch[16:] == before[16:]
    assert is_whole(batch)
    assert check_sent(batch, BYTES_MAX).next_offset == offset + field(batch, "last_offset_delta") + 1


@given(honest_batches(), st.integers(0, 2**63 - 1))
def test_stamping_a_batch_sets_the_brokers_time_and_keeps_the_checksum_right(batch: bytearray, now_ms: int) -> None:
    before = bytes(batch)
    header = stamp(memoryview(batch), check_sent(batch, BYTES_MAX), now_ms)
    assert header == read_header(batch)
    assert header.max_timestamp == now_ms
    assert header.attributes == field(before, "attributes") | 0x08
    assert is_whole(batch)
    assert batch[:17] == before[:17]
    assert batch[23:35] == before[23:35]
    assert batch[43:] == before[43:]


# Control batches


@pytest.mark.parametrize(("committed", "kind"), [(False, 0), (True, 1)])
def test_a_marker_is_read_by_the_clients_as_the_end_of_a_transaction(committed: bool, kind: int) -> None:
    marker = control_batch(2**40, 7, 123, 1_700_000_000_000, committed, coordinator_epoch=3)
    read_by = DefaultRecordBatch(bytes(marker))
    assert read_by.validate_crc()
    assert read_by.is_control_batch
    assert read_by.is_transactional
    assert (read_by.producer_id, read_by.producer_epoch, read_by.base_sequence) == (2**40, 7, -1)
    (record,) = read_by
    assert (record.offset, record.timestamp) == (123, 1_700_000_000_000)
    assert record.key == struct.pack(">hh", 0, kind)
    assert record.value == struct.pack(">hi", 0, 3)
    assert record.headers == []


# Fetched from Apache Kafka 4.3.1, as its consumers get them.
KAFKA_COMMITTED = (
    "0000000000000001000000420000000002b92282fe003000000000000001a1fe5ced04000001a1fe5ced0400000000000000000000"
    "ffffffff000000012000000008000000010c00000000000000"
)
KAFKA_ABORTED = (
    "000000000000000300000042000000000214274ca0003000000000000001a1fe5ced58000001a1fe5ced5800000000000000000000"
    "ffffffff000000012000000008000000000c00000000000000"
)


@pytest.mark.parametrize(("written", "committed"), [(KAFKA_COMMITTED, True), (KAFKA_ABORTED, False)])
def test_a_marker_is_byte_for_byte_what_apache_kafka_writes(written: str, committed: bool) -> None:
    header = read_header(bytes.fromhex(written))
    made = control_batch(header.producer_id, header.producer_epoch, header.base_offset, header.max_timestamp, committed)
    assert made.hex() == written
