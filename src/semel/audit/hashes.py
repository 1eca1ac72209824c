"""The two keyed hashes of an audit, for many ids at once: SipHash under every sum, and a quick one for the buckets.

**SipHash with 128 bits.** The sums of the hashes of two different multisets are equal with a probability of about
2**-128 times the number of rows, whatever the ids are, as long as nobody who chooses ids knows the key: without the key
SipHash looks like a random function of its input. The rounds are 1 and 3, as in the hash tables of Python and Rust,
because here, as there, nobody sees a hash; with the published 2 and 4 an audit of 10^8 ids takes half as long again.
This file must never treat two ids alike because of their number or order: the result depends on the key and the bytes
alone.

**The bucket of an id** takes a small part of the work of SipHash, and for ids that agree, the second reading of an
audit needs nothing else. Each word of an id is multiplied by a secret odd number, and the upper bits of the sum are the
bucket: Dietzfelbinger's multiply-shift. So ids are spread over all buckets, and nobody who lacks the key can choose
many that share one; otherwise the audit would take longer, but still be right. No verdict may ever rest on this hash:
the sums of SipHash say whether buckets agree, and they have no part of its secret numbers.
"""

import hashlib
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from semel.audit.words import WORD_BYTES, Words, in_words, length_word

KEY_BYTES: Final = 16

_COMPRESSION_ROUNDS: Final = 1
_FINALIZATION_ROUNDS: Final = 3
# "somepseudorandomlygeneratedbytes", as every SipHash begins.
_BEGIN: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# These distinguish the variant of 128 bits from that of 64, and its second half from its first.
_WIDE: Final = 0xEE
_SECOND_HALF: Final = 0xDD

_PURPOSE: Final = b"semel audit: buckets"
_WORD_BITS: Final = 8 * WORD_BYTES


class Digests(NamedTuple):
    """The hash of each id, as its two halves."""

    low: Words
    high: Words


def siphash(
    ids: Any,
    key: bytes,
    compression_rounds: int = _COMPRESSION_ROUNDS,
    finalization_rounds: int = _FINALIZATION_ROUNDS,
) -> Digests:
    """The hash of each value of an Arrow array of bytes that holds no null."""
    digests = Digests(np.empty(len(ids), np.uint64), np.empty(len(ids), np.uint64))
    for places, words in in_words(ids):
        digests.low[places], digests.high[places] = hash_words(words, key, compression_rounds, finalization_rounds)
    return digests


def siphash_words(columns: list[Words], key: bytes) -> Digests:
    """The hash of rows that all have these words and no other bytes."""
    length = len(columns) * WORD_BYTES
    return hash_words([*columns, np.full(len(columns[0]), length_word(length))], key)


def hash_words(
    words: list[Words],
    key: bytes,
    compression_rounds: int = _COMPRESSION_ROUNDS,
    finalization_rounds: int = _FINALIZATION_ROUNDS,
) -> Digests:
    """The hash of ids, given as their words; the last word holds the length."""
    lanes, spare = _compressed(words, key, compression_rounds)
    low = _finish(lanes, spare, finalization_rounds)
    lanes[1] ^= np.uint64(_SECOND_HALF)
    return Digests(low, _finish(lanes, spare, finalization_rounds))


def _compressed(words: list[Words], key: bytes, rounds: int) -> tuple[list[Words], Words]:
    """The state of SipHash after all words, and an array to work with."""
    first_key, second_key = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:KEY_BYTES], "little")
    keys = (first_key, second_key ^ _WIDE, first_key, second_key)
    lanes = [np.full(len(words[0]), begin ^ key, np.uint64) for begin, key in zip(_BEGIN, keys, strict=True)]
    spare = np.empty_like(lanes[0])
    for word in words:
        lanes[3] ^= word
        for _ in range(rounds):
            _round(lanes, spare)
        lanes[0] ^= word
    lanes[2] ^= np.uint64(_WIDE)
    return lanes, spare


def _finish(lanes: list[Words], spare: Words, rounds: int) -> Words:
    for _ in range(rounds):
        _round(lanes, spare)
    half = lanes[0] ^ lanes[1]
    half ^= lanes[2]
    half ^= lanes[3]
    return half


def _round(lanes: list[Words], spare: Words) -> None:
    a, b, c, d = lanes
    a += b
    _rotate(b, 13, spare)
    b ^= a
    _rotate(a, 32, spare)
    c += d
    _rotate(d, 16, spare)
    d ^= c
    a += d
    _rotate(d, 21, spare)
    d ^= a
    c += b
    _rotate(b, 17, spare)
    b ^= c
    _rotate(c, 32, spare)


def _rotate(lane: Words, bits: int, spare: Words) -> None:
    np.right_shift(lane, np.uint64(64 - bits), out=spare)
    np.left_shift(lane, np.uint64(bits), out=lane)
    np.bitwise_or(lane, spare, out=lane)


def buckets_of(words: list[Words], key: bytes, buckets: int) -> npt.NDArray[np.int64]:
    """The buckets of ids, given as their words; the number of buckets is a power of two."""
    total = np.zeros_like(words[0])
    product = np.empty_like(total)
    for word, factor in zip(words, _factors(key, len(words)), strict=True):
        np.multiply(word, factor, out=product)
        total += product
    bits = buckets.bit_length() - 1
    # In two steps, because with one bucket the shift would be by all bits of a word, which is not possible.
    total >>= np.uint64(1)
    total >>= np.uint64(_WORD_BITS - 1 - bits)
    return total.view(np.int64)


@lru_cache(maxsize=16)
def _factors(key: bytes, count: int) -> Words:
    numbers = np.frombuffer(hashlib.shake_256(_PURPOSE + key).digest(count * WORD_BYTES), "<u8")
    return numbers.astype(np.uint64) | np.uint64(1)
