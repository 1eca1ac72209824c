"""The audit of a move calls two logs equal only if they are, and finds the place of each offset in the other log."""

import pytest

from semel.ui.transfer.comparison import Compared, Count, behind, compare, count_differences, count_records
from semel.ui.transfer.pieces import Piece
from semel.wire.batch import HEADER_BYTES, close_batch, read_header
from semel.wire.record_bodies import key_and_value
from semel.wire.records import Record, decode_batches, encode_batch


def batch(base_offset: int, *values: str, codec: str = "none", at_ms: int = 7) -> Piece:
    """Records whose keys are the first letters of their values."""
    records = [Record(value.encode(), value[:1].encode(), timestamp_ms=at_ms) for value in values]
    encoded = encode_batch(records, base_offset=base_offset, codec=codec)
    return Piece(read_header(encoded), memoryview(encoded), 0)


def with_holes(piece: Piece, last_offset_delta: int) -> Piece:
    """As compaction leaves a batch."""
    encoded = close_batch(piece.header._replace(last_offset_delta=last_offset_delta), piece.batch[HEADER_BYTES:])
    return piece._replace(header=read_header(encoded), batch=memoryview(encoded))


def tombstone(base_offset: int, key: str) -> Piece:
    encoded = encode_batch([Record(None, key.encode(), timestamp_ms=7)], base_offset=base_offset)
    return Piece(read_header(encoded), memoryview(encoded), 0)


SOURCE = [batch(10, "a1", "b1"), batch(14, "c1", "d1", "e1"), batch(20, "f1")]


def test_equal_logs_are_equal_however_their_batches_are_cut_and_compressed() -> None:
    for target in (
        [batch(0, "a1", "b1"), batch(3, "c1", "d1", "e1"), batch(7, "f1")],
        [batch(0, "a1"), batch(1, "b1", "c1", codec="zstd"), batch(4, "d1"), batch(6, "e1", "f1", codec="gzip")],
    ):
        compared = compare(SOURCE, target, [], may_lack=False)
        assert (compared.records, compared.difference) == (6, None)


def test_an_offset_stands_for_the_same_record_or_for_the_next_one() -> None:
    target = [batch(0, "a1", "b1"), batch(3, "c1", "d1", "e1"), batch(7, "f1")]
    compared = compare(SOURCE, target, [0, 10, 11, 12, 15, 16, 17, 20, 21], may_lack=False)
    assert compared.places == {0: 0, 10: 0, 11: 1, 12: 3, 15: 4, 16: 5, 17: 7, 20: 7}


@pytest.mark.parametrize(
    ("target", "difference", "count"),
    [
        ([batch(0, "a1", "b1"), batch(3, "d1", "e1"), batch(7, "f1")], (14, 3), Count(1, 0, 0)),
        ([*SOURCE, batch(30, "f1")], (-1, 30), Count(0, 1, 0)),
        ([*SOURCE[:2], batch(20, "x1")], (20, 20), Count(1, 0, 1)),
        ([SOURCE[1], SOURCE[0], SOURCE[2]], (10, 14), Count(0, 0, 0)),
        (SOURCE[:2], (20, -1), Count(1, 0, 0)),
        ([*SOURCE[:2], batch(20, "f1", at_ms=8)], (20, 20), Count(1, 0, 1)),
    ],
)
def test_a_difference_is_found_where_it_is(target: list[Piece], difference: tuple[int, int], count: Count) -> None:
    assert compare(SOURCE, target, [], may_lack=False).difference == difference
    assert count_differences(SOURCE, target) == count
    # A partition may have more records than there is memory for digests.
    assert count_differences(SOURCE, target, records_max=3) is None


def test_compaction_may_have_taken_what_a_later_record_supersedes() -> None:
    target = [batch(0, "a1", "b1"), batch(2, "a2")]
    assert compare([batch(1, "b1"), batch(2, "a2")], target, [0, 2], may_lack=True) == Compared(2, {0: 1, 2: 2}, None)
    assert compare([batch(1, "b1")], [*target[:1], tombstone(5, "a")], [], may_lack=True).difference is None


def test_compaction_takes_no_last_record_of_a_key() -> None:
    assert compare([batch(1, "b1")], [batch(0, "a1", "b1")], [], may_lack=True).difference == (-1, 0)
    assert compare([batch(0, "a1"), batch(1, "b1")], [batch(0, "a1")], [], may_lack=True).difference == (1, -1)


def test_retention_may_have_taken_the_beginning_of_a_compacted_log() -> None:
    target = [batch(0, "a1", "b1"), batch(2, "c1"), batch(3, "d1")]
    taken = compare([batch(2, "c1"), batch(3, "d1")], target, [0], may_lack=True, may_begin_later=True)
    assert taken == Compared(2, {0: 2}, None)
    assert compare([], target, [], may_lack=True, may_begin_later=True).difference is None
    # Only the beginning.
    source = [batch(0, "a1"), batch(3, "d1")]
    assert compare(source, target, [], may_lack=True, may_begin_later=True).difference == (-1, 1)


def test_a_batch_with_holes_is_written_anew_without_them() -> None:
    holey = with_holes(batch(4, "a1", "b1"), last_offset_delta=5)
    assert not holey.is_plain
    records = holey.records()
    assert records is not None
    written = close_batch(holey.header._replace(last_offset_delta=1, base_offset=0), records.payload)
    (decoded,) = decode_batches(written)
    assert [(one.offset, one.key, one.value) for one in decoded.records] == [(0, b"a", b"a1"), (1, b"b", b"b1")]


def test_a_log_is_read_without_so_many_records_of_its_beginning() -> None:
    def left(records: int) -> list[bytes | None]:
        return [key_and_value(body.content)[1] for piece in behind(SOURCE, records) for body in piece.bodies()]

    assert left(3) == [b"d1", b"e1", b"f1"]
    assert left(2) == [b"c1", b"d1", b"e1", b"f1"]
    assert left(0) == [b"a1", b"b1", b"c1", b"d1", b"e1", b"f1"]
    assert count_records(behind(SOURCE, 3)) == 3
