"""Batches found in a buffer without being opened: where they begin, where they end, and what is no batch at all."""

import pytest

from semel.wire.errors import ProtocolError
from semel.wire.records import Record, closed_batches, encode_batch, next_offset

FIRST = bytes(encode_batch([Record(b"a"), Record(b"b")], base_offset=5))
SECOND = bytes(encode_batch([Record(b"c")], base_offset=7, codec="zstd"))


def test_whole_batches_are_found_and_a_last_one_that_is_cut_short_is_left() -> None:
    for cut in range(len(SECOND)):
        buffer = FIRST + SECOND[:cut]
        assert [(at, header.base_offset) for at, header in closed_batches(buffer)] == [(0, 5)]
        assert next_offset(buffer) == 7
    assert [at for at, _ in closed_batches(FIRST + SECOND)] == [0, len(FIRST)]
    assert next_offset(FIRST + SECOND) == 8


def test_a_buffer_without_one_whole_batch_has_no_next_offset() -> None:
    assert list(closed_batches(FIRST[:-1])) == []
    with pytest.raises(ProtocolError, match="not one whole batch"):
        next_offset(FIRST[:-1])


def test_a_batch_that_is_damaged_is_not_handed_on() -> None:
    damaged = FIRST[:-1] + bytes([FIRST[-1] ^ 1])
    with pytest.raises(ProtocolError, match="the batch at offset 5 does not match its checksum"):
        list(closed_batches(damaged))


@pytest.mark.parametrize("find", [next_offset, lambda buffer: list(closed_batches(buffer))])
def test_a_length_that_holds_no_header_and_an_older_format_are_refused(find) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProtocolError, match="does not hold a batch header"):
        find(FIRST[:8] + (1).to_bytes(4) + FIRST[12:])
    with pytest.raises(ProtocolError, match="does not hold a batch header"):
        find(FIRST[:8] + (-20).to_bytes(4, signed=True) + FIRST[12:])
    with pytest.raises(ProtocolError, match="format 0"):
        find(FIRST[:16] + b"\0" + FIRST[17:])
