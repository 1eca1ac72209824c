"""The digest of a lane's rows: one number that is the same for the same rows, in any order.

Each row becomes a number of 64 bits, made from the hashes of its columns, and these numbers are summed. Every row that
is written costs this, so the hashes are computed for a whole column at a time. The digest finds accidental differences;
it is no signature, and must not be used as one.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from semel.client.arrow.encoding import fields_of, headers_of
from semel.client.arrow.layout import Fields, Integers, Octets
from semel.client.arrow.partitioner import Words
from semel.spark.lanes.protocol import Digest
from semel.spark.lanes.rows import BY_KEY, TIME_OF_WRITING, Rows

Hashes = NDArray[np.uint64]

# The hash of null: no checksum has more than 32 bits, and only one in 2**64 hashes of short texts equals it.
_NULL: Final = np.uint64(1 << 32)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MODULUS: Final = 1 << 64
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FACTOR: Final = np.uint64(_GOLDEN)
# One for each column, so that a row whose key and value are exchanged gets another number.
_SALTS: Final = tuple(np.uint64(_GOLDEN * number % _MODULUS) for number in range(6))

# Texts up to this length are hashed word by word, all together, and longer ones by a checksum each: that is the fastest
# for each.
_SHORT_BYTES_MAX: Final = 256


class RunningDigest:
    """A digest to which record batches are added, one after another."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0

    def add(self, rows: Rows) -> None:
        hashes = np.zeros(rows.size, np.uint64)
        for salt, column in zip(_SALTS, _columns(rows), strict=True):
            hashes = _mixed(hashes + column + salt)
        self._count += rows.size
        self._sum = (self._sum + int(hashes.sum(dtype=np.uint64))) % _MODULUS

    @property
    def value(self) -> Digest:
        return Digest(self._count, self._sum)


def _columns(rows: Rows) -> Iterable[Hashes | np.uint64]:
    """For each column one number for each row, or one for all rows. A missing column gets the same numbers as one of
    nulls."""
    if isinstance(rows.topics, str):
        yield _hash_of(rows.topics.encode())
    else:
        yield _hashes(*fields_of(rows.topics))
    yield _hashes(*fields_of(rows.values))
    yield _hashes(*fields_of(rows.keys)) if rows.keys is not None else _NULL
    yield rows.partitions.astype(np.uint64) if rows.partitions is not None else _number(BY_KEY)
    yield rows.timestamps_ms.astype(np.uint64) if rows.timestamps_ms is not None else _number(TIME_OF_WRITING)
    yield _hashes(*fields_of(headers_of(rows.headers))) if rows.headers is not None else _hash_of(b"")


def _number(number: int) -> np.uint64:
    return np.uint64(number % _MODULUS)


def _hash_of(text: bytes) -> np.uint64:
    hashes = _hashes(np.frombuffer(text, np.uint8), Fields(np.zeros(1, np.int64), np.array([len(text)])))
    return np.uint64(hashes[0])


def _hashes(octets: Octets, fields: Fields) -> Hashes:
    """A number for each field: 64 bits for a short one, 32 bits for a long one."""
    longer = np.flatnonzero(fields.lengths > _SHORT_BYTES_MAX)
    if not len(longer):
        hashes = _short_hashes(octets, fields)
    else:
        hashes = np.empty(len(fields.lengths), np.uint64)
        hashes[longer] = _checksums(octets, fields.starts[longer], fields.lengths[longer])
        shorter = np.flatnonzero(fields.lengths <= _SHORT_BYTES_MAX)
        hashes[shorter] = _short_hashes(octets, Fields(fields.starts[shorter], fields.lengths[shorter]))
    hashes[fields.lengths < 0] = _NULL
    return hashes


def _short_hashes(octets: Octets, fields: Fields) -> Hashes:
    words = Words(octets, fields, np.dtype("<u8"))
    hashes = words.lengths.astype(np.uint64) * _SECOND
    for first, word in words:
        hashes[first:] = _stirred(hashes[first:], word)
    return words.in_order(_stirred(hashes, words.rests))


def _stirred(hashes: Hashes, words: NDArray[np.uint64]) -> Hashes:
    stirred = (hashes ^ words) * _FACTOR
    stirred ^= stirred >> np.uint64(32)
    return stirred


def _checksums(octets: Octets, starts: Integers, lengths: Integers) -> Hashes:
    view = octets.data
    cuts = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return np.fromiter((crc32c(view[start:end]) for start, end in cuts), np.uint64, len(starts))


def _mixed(hashes: Hashes) -> Hashes:
    """The finisher of SplitMix64: without it, differences would cancel out in the sum."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _FIRST
    hashes = (hashes ^ (hashes >> np.uint64(27))) * _SECOND
    mixed: Hashes = hashes ^ (hashes >> np.uint64(31))
    return mixed
