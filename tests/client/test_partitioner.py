"""Where rows go that name no partition: keys where Java's clients place them, and rows without a key in turns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.client.arrow.partitioner import LONG_KEY_BYTES, TURN_ROWS_MIN, Turns, murmur2, place_of_keys

WORD = 0xFFFFFFFF


def naive_murmur2(key: bytes) -> int:
    """Kafka's `Utils.murmur2`, line by line."""
    factor = 0x5BD1E995
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & WORD
        word = (word ^ word >> 24) * factor & WORD
        hashed = hashed * factor & WORD ^ word
    if key[whole:]:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * factor & WORD
    hashed = (hashed ^ hashed >> 13) * factor & WORD
    return hashed ^ hashed >> 15


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_has_the_hash_that_kafka_gives_it(key: bytes, expected: int) -> None:
    assert murmur2(pa.array([key])).tolist() == [expected & WORD]
    assert naive_murmur2(key) == expected & WORD


KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=20)


@given(KEYS, KEYS, st.sampled_from([pa.binary(), pa.large_binary()]))
def test_all_keys_have_the_hashes_that_each_has_alone(
    keys: list[bytes | None], before: list[bytes | None], kind: pa.DataType
) -> None:
    column = pa.array([*before, *keys, *before], kind)[len(before) : len(before) + len(keys)]
    hashes = murmur2(column).tolist()
    assert [one for one, key in zip(hashes, keys, strict=True) if key is not None] == [
        naive_murmur2(key) for key in keys if key is not None
    ]


@pytest.mark.parametrize("more", range(5))
def test_a_long_key_among_short_ones_has_its_hash_too(more: int) -> None:
    keys = [b"short", bytes(range(256)) * (LONG_KEY_BYTES // 256) + b"x" * more, b"", b"other"]
    assert murmur2(pa.array(keys)).tolist() == [naive_murmur2(key) for key in keys]


def test_places_are_those_of_javas_clients() -> None:
    hashes = np.array([-973932308 & WORD, 479470107, 0], np.uint32)
    assert place_of_keys(hashes, 7).tolist() == [(-973932308 & 0x7FFFFFFF) % 7, 479470107 % 7, 0]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=6), st.integers(1, 9), st.data())
def test_rows_without_a_key_go_round_in_runs(batches: list[int], count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count - 1))
    turns = Turns(lambda _: first)
    expected_next = first
    for rows in batches:
        places = turns.places("t", rows, count).tolist()
        assert len(places) == rows
        if not rows:
            continue
        runs = [0, *(at for at in range(1, rows) if places[at] != places[at - 1]), rows]
        lengths = [end - start for start, end in pairwise(runs)]
        if count > 1:
            assert [places[at] for at in runs[:-1]] == [(expected_next + turn) % count for turn in range(len(lengths))]
            assert all(length >= TURN_ROWS_MIN for length in lengths[:-1])
        assert len(lengths) <= count
        expected_next = (places[-1] + 1) % count


def test_a_large_batch_is_even_over_all_partitions() -> None:
    places = Turns(lambda _: 2).places("t", 40_000, 4)
    assert np.bincount(places).tolist() == [10_000] * 4


def test_each_topic_has_turns_of_its_own() -> None:
    turns = Turns(lambda count: count - 1)
    taken = [turns.places(topic, 1, count).tolist() for topic, count in (("a", 3), ("b", 5), ("a", 3), ("b", 5))]
    assert taken == [[2], [4], [0], [0]]
