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
        list(record_times(batch))


def test_what_grows_beyond_the_limit_is_not_opened() -> None:
    batch = encode_batch([Record(bytes(10_000))], codec="gzip")
    with pytest.raises(ProtocolError):
        list(record_times(batch, 5_000))
