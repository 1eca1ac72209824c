"""The times of a batch's records, read without opening the records, are those that opening them shows."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.wire.errors import ProtocolError
from semel.wire.records import CODECS, Record, decode_batches, encode_batch, record_times

RECORDS = st.lists(
    st.builds(
        Record,
        value=st.none() | st.binary(max_size=300),
        key=st.none() | st.binary(max_size=5),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        timestamp_ms=st.integers(min_value=0, max_value=2**41),
    ),
    min_size=1,
    max_size=20,
)


@given(records=RECORDS, codec=st.sampled_from(CODECS), base_offset=st.integers(min_value=0, max_value=2**40))
def test_times_and_offsets_are_those_of_the_opened_records(records: list[Record], codec: str, base_offset: int) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    (opened,) = decode_batches(batch)
    assert list(record_times(batch)) == [(record.offset, record.timestamp_ms) for record in opened.records]


@given(payload=st.binary(max_size=60), codec=st.integers(min_value=0, max_value=7))
def test_bytes_that_are_no_records_are_a_protocol_error_and_nothing_else(payload: bytes, codec: int) -> None:
    batch = encode_batch([Record(b"x")])[:61] + payload
    batch[22] = codec
    with contextlib.suppress(ProtocolError):
        for offset, timestamp_ms in record_times(batch):
            assert offset == 0
            assert -(2**63) <= timestamp_ms < 2**63


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"\x10\x00\x00\x02\x01\x02x\x00\x00", id="an offset outside its batch"),
        pytest.param(b"\x10\x00\x00\x01\x01\x02x\x00\x00", id="an offset before its batch"),
        pytest.param(b"\x18\x00" + b"\xfe" + b"\xff" * 8 + b"\x01\x00", id="a time beyond all clocks"),
    ],
)
def test_a_record_that_cannot_be_where_or_when_it_says_is_a_protocol_error(record: bytes) -> None:
    """A look-up would otherwise answer an offset that does not exist, or a number that does not fit its field."""
    batch = encode_batch([Record(b"x", timestamp_ms=2**62)])[:61] + record
    with pytest.raises(ProtocolError):
        list(record_times(batch))


def test_what_grows_beyond_the_limit_is_not_opened() -> None:
    batch = encode_batch([Record(bytes(10_000))], codec="gzip")
    with pytest.raises(ProtocolError):
        list(record_times(batch, 5_000))
