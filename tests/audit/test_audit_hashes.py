"""The hash under the sums: the published one, for ids of any length, in any order and number."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.audit.hashes import siphash, siphash_words
from semel.audit.words import CHUNK_ROWS

KEY = bytes(range(16))

# From the reference implementation: the hashes of 00 01 02 ... of these lengths under the key 00 01 .. 0f, with 2 and 4
# rounds and 128 bits.
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    63: "5150d1772f50834a503e069a973fbd7c",
}


def hashes(values: list[bytes], key: bytes = KEY, **rounds: int) -> list[str]:
    digests = siphash(pa.array(values, pa.binary()), key, **rounds)
    pairs = zip(digests.low.tolist(), digests.high.tolist(), strict=True)
    return [(low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() for low, high in pairs]


def naive(value: bytes, key: bytes, wide: bool) -> int:
    """SipHash with rounds 1 and 3, one word after the other."""
    mask = 2**64 - 1
    first, second = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    a, b = first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D ^ (0xEE if wide else 0)
    c, d = first ^ 0x6C7967656E657261, second ^ 0x7465646279746573

    def rotated(lane: int, bits: int) -> int:
        return (lane << bits | lane >> 64 - bits) & mask

    def step() -> None:
        nonlocal a, b, c, d
        a, c = (a + b) & mask, (c + d) & mask
        b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
        a = (rotated(a, 32) + d) & mask
        c = (c + b) & mask
        b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
        c = rotated(c, 32)

    padded = value + bytes(7 - len(value) % 8) + bytes([len(value) & 0xFF])
    for begin in range(0, len(padded), 8):
        word = int.from_bytes(padded[begin : begin + 8], "little")
        d ^= word
        step()
        a ^= word
    c ^= 0xEE if wide else 0xFF
    for _ in range(3):
        step()
    low = a ^ b ^ c ^ d
    if not wide:
        return low
    b ^= 0xDD
    for _ in range(3):
        step()
    return low | (a ^ b ^ c ^ d) << 64


def test_it_is_the_published_hash() -> None:
    values = [bytes(range(length)) for length in PUBLISHED]
    assert hashes(values, compression_rounds=2, finalization_rounds=4) == list(PUBLISHED.values())


def test_the_naive_hash_of_these_tests_is_pythons_own() -> None:
    """Python hashes bytes by SipHash with the same rounds, and with a key of zeros where its seed is 0."""
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip(f"this Python hashes by {sys.hash_info.algorithm}")
    program = "print(hash(b'a payment with a long id'))"
    ran = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True
    )
    assert int(ran.stdout) % 2**64 == naive(b"a payment with a long id", bytes(16), wide=False)


@given(st.lists(st.binary(max_size=300), max_size=40), st.binary(min_size=16, max_size=16))
def test_every_id_gets_the_hash_it_would_get_alone(values: list[bytes], key: bytes) -> None:
    expected = [naive(value, key, wide=True) for value in values]
    assert hashes(values, key) == [number.to_bytes(16, "little").hex() for number in expected]


@given(st.lists(st.binary(max_size=20), min_size=3, max_size=30), st.integers(0, 3), st.integers(0, 3))
def test_a_part_of_an_array_gets_the_same_hashes(values: list[bytes], begin: int, end: int) -> None:
    part = pa.array(values, pa.binary()).slice(begin, max(len(values) - begin - end, 0))
    assert siphash(part, KEY).low.tolist() == siphash(pa.array(part.to_pylist(), pa.binary()), KEY).low.tolist()


def test_more_ids_than_one_chunk_are_hashed_in_their_order() -> None:
    values = [str(number).encode() for number in range(CHUNK_ROWS + 5)]
    found = hashes(values)
    assert [found[number] for number in (0, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 4)] == [
        naive(values[number], KEY, wide=True).to_bytes(16, "little").hex()
        for number in (0, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 4)
    ]


def test_words_are_hashed_as_their_bytes() -> None:
    values = [bytes(range(start, start + 32)) for start in range(10)]
    words = pa.array(values, pa.binary(32)).buffers()[1]
    columns = [
        pa.array([int.from_bytes(value[begin : begin + 8], "little") for value in values], pa.uint64()).to_numpy()
        for begin in range(0, 32, 8)
    ]
    assert words is not None
    assert siphash_words(columns, KEY).high.tolist() == siphash(pa.array(values, pa.binary()), KEY).high.tolist()
