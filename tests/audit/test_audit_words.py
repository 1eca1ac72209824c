"""Ids as words: the same for the same bytes, whatever stands beside them and however they lie in memory."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.audit.hashes import buckets_of
from semel.audit.words import CHUNK_ROWS, in_words

KEY = bytes(range(16))

VALUES = st.one_of(
    st.lists(st.binary(max_size=300), max_size=40),
    st.integers(0, 40).flatmap(lambda length: st.lists(st.binary(min_size=length, max_size=length), max_size=40)),
)


def naive(value: bytes) -> list[int]:
    padded = value + bytes(7 - len(value) % 8) + bytes([len(value) & 0xFF])
    return [int.from_bytes(padded[begin : begin + 8], "little") for begin in range(0, len(padded), 8)]


def found(ids: pa.Array) -> list[list[int]]:
    rows: dict[int, list[int]] = {}
    for places, words in in_words(ids):
        numbers = range(len(ids))[places] if isinstance(places, slice) else places.tolist()
        rows.update(
            zip(numbers, (list(row) for row in zip(*(word.tolist() for word in words), strict=True)), strict=True)
        )
    return [rows[number] for number in sorted(rows)]


def exactly_so_long(values: list[bytes]) -> pa.Array:
    """With no byte in memory behind the last one."""
    array = pa.array(values, pa.binary())
    _, offsets, data = array.buffers()
    return pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, data and pa.py_buffer(data.to_pybytes())])


@given(VALUES)
def test_every_id_has_the_words_of_its_own_bytes(values: list[bytes]) -> None:
    assert found(exactly_so_long(values)) == [naive(value) for value in values]


@given(VALUES, st.integers(0, 3), st.integers(0, 3))
def test_what_stands_around_a_part_of_an_array_is_not_in_its_words(values: list[bytes], begin: int, end: int) -> None:
    part = exactly_so_long(values).slice(begin, max(len(values) - begin - end, 0))
    assert found(part) == [naive(value) for value in part.to_pylist()]


def test_chunks_of_another_kind_each_stand_where_they_are() -> None:
    """The first has one length, the second one number of words, the third more than one."""
    values = [b"%036d" % number for number in range(CHUNK_ROWS)]
    values += [b"x" * (8 + number % 8) for number in range(CHUNK_ROWS)]
    values += [b"y" * (number % 20) for number in range(99)]
    assert found(exactly_so_long(values)) == [naive(value) for value in values]


def buckets(values: list[bytes], key: bytes, count: int) -> list[int]:
    rows = [0] * len(values)
    for places, words in in_words(pa.array(values, pa.binary())):
        numbers = range(len(values))[places] if isinstance(places, slice) else places.tolist()
        for number, bucket in zip(numbers, buckets_of(words, key, count).tolist(), strict=True):
            rows[number] = bucket
    return rows


@given(VALUES, st.binary(min_size=16, max_size=16), st.integers(0, 20))
def test_an_id_has_the_bucket_that_it_would_have_alone(values: list[bytes], key: bytes, bits: int) -> None:
    together = buckets(values, key, 1 << bits)
    assert together == [buckets([value], key, 1 << bits)[0] for value in values]
    assert all(0 <= bucket < 1 << bits for bucket in together)


KINDS_OF_ID: dict[str, Callable[[int], bytes]] = {
    "numbers": lambda number: b"%d" % number,
    "big numbers": lambda number: b"%d" % (10**14 + number),
    "numbers in front": lambda number: b"%08d-payment" % number,
    "numbers behind": lambda number: b"payment-of-shop-%d" % number,
    "numbers in the middle": lambda number: b"shop%08dpayment" % number,
    "bytes": lambda number: number.to_bytes(8, "big"),
    "bytes, the lowest first": lambda number: number.to_bytes(16, "little"),
    "many thousands apart": lambda number: (number << 40).to_bytes(8, "little"),
    "lengths": lambda number: b"x" * (number % 500) + b"%d" % (number // 500),
}


@pytest.mark.parametrize("kind", KINDS_OF_ID)
@pytest.mark.parametrize("key", [KEY, bytes(16), b"sixteen of these"])
def test_ids_like_those_of_real_life_are_spread_over_all_buckets(kind: str, key: bytes) -> None:
    """100 of them a bucket, were they spread evenly."""
    found = buckets([KINDS_OF_ID[kind](number) for number in range(25_600)], key, 256)
    most = max(found.count(bucket) for bucket in range(256))
    assert most <= 250


def test_another_key_makes_other_buckets() -> None:
    values = [b"%d" % number for number in range(1000)]
    one, other = buckets(values, KEY, 256), buckets(values, bytes(16), 256)
    assert sum(first == second for first, second in zip(one, other, strict=True)) < 50
