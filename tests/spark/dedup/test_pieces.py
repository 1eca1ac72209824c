"""Rows as pieces, without Spark: nothing is lost on the way, and each key stays in one bucket."""

import datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from semel.spark.dedup.pieces import BUCKET, NEWEST, PLACE, ROWS, Packer, Unpacker, joined, sliced, unpacked

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("value", pa.string())])
instants = st.datetimes(timezones=st.just(datetime.UTC))
rows = st.lists(
    st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | instants, st.none() | st.text()), max_size=30
)


def table(values: list[tuple[int | None, datetime.datetime | None, str | None]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)] or [[], [], []], schema=SCHEMA)


@given(rows, st.integers(1, 20), st.integers(1, 10), st.integers(1, 12), st.sampled_from([1, 200, 1 << 20]))
def test_every_row_arrives_as_it_was_in_the_one_bucket_of_its_key(
    values: list[tuple[int | None, datetime.datetime | None, str | None]],
    buckets: int,
    batch_rows: int,
    rows_max: int,
    bytes_max: int,
) -> None:
    """Whatever is gathered for a piece: the limits are small enough to be reached."""
    packer = Packer("key", buckets, "at", wakes_all=True, rows_max=rows_max, bytes_max=bytes_max)
    packed = pa.Table.from_batches(packer(table(values).to_batches(max_chunksize=batch_rows)))
    arrived = []
    for piece in packed.to_pylist():
        if piece[ROWS] is None:
            continue
        inside = unpacked(piece[ROWS])
        arrived += [tuple(row.values()) for row in inside.to_pylist()]
        assert {key % buckets for key in inside["key"].to_pylist() if key is not None} <= {piece[BUCKET]}
        times = [at for at in inside["at"].to_pylist() if at is not None]
        assert piece[NEWEST] == max(times, default=None)
    assert sorted(arrived, key=repr) == sorted(values, key=repr)
    assert len(set(packed[PLACE].to_pylist())) == packed.num_rows
    woken = [piece[BUCKET] for piece in packed.to_pylist() if piece[ROWS] is None]
    assert woken == list(range(buckets))


@given(rows, st.integers(1, 7), st.sampled_from([1, 200, 1 << 20]))
def test_what_is_packed_is_unpacked_with_the_columns_that_are_asked_for(
    values: list[tuple[int | None, datetime.datetime | None, str | None]], rows_max: int, bytes_max: int
) -> None:
    wanted = pa.schema([("value", pa.string()), ("new", pa.int32()), ("key", pa.int64())])
    cut = list(sliced(table(values), rows_max, bytes_max))
    assert all(0 < unpacked(piece).num_rows <= rows_max for piece in cut)
    pieces = pa.record_batch({ROWS: pa.array(cut, pa.binary())})
    out = pa.Table.from_batches(Unpacker(wanted)([pieces]), wanted)
    assert out.to_pylist() == [{"value": value, "new": None, "key": key} for key, _, value in values]


def test_rows_without_a_key_are_spread_over_all_buckets() -> None:
    """They need no state, and one task would have the work of all."""
    (pieces,) = Packer("key", 4, None, wakes_all=False)(table([(None, None, "value")] * 8).to_batches())
    assert pieces[BUCKET].to_pylist() == [0, 1, 2, 3]


def test_rows_that_were_held_get_the_columns_that_have_come_since_and_the_new_ones_keep_them() -> None:
    held = pa.table({"key": [1], "gone": ["x"]})
    new = pa.table({"key": [2], "value": ["new"]})
    assert joined([held, new]).to_pylist() == [{"key": 1, "value": None}, {"key": 2, "value": "new"}]


def test_wide_rows_are_gathered_and_cut_by_their_bytes() -> None:
    """A task holds so much besides the batch that it reads, and a piece is one value in Spark's rows."""
    wide = table([(7, None, "x" * 1000)] * 10)
    packer = Packer("key", 1, None, wakes_all=False, bytes_max=4000)
    gathered = pa.Table.from_batches(packer(wide.to_batches(max_chunksize=1)))
    assert [unpacked(piece).num_rows for piece in gathered[ROWS].to_pylist()] == [4, 4, 2]
    assert [unpacked(piece).num_rows for piece in sliced(wide, bytes_max=4000)] == [3, 3, 3, 1]
