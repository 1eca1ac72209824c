"""The digest of a lane's rows: one number that is the same whenever the rows are, in whatever order they come.

Each row becomes a number of 64 bits, made of hashes of what it has, and these are summed. It is paid for every row that
is ever written, so a column is taken at a time. It finds what went wrong by accident; it is no signature, and must not
be used as one.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from semel.spark.lanes.protocol import Digest
from semel.spark.lanes.rows import PARTITION_BY_KEY, TIME_OF_WRITING, Headers, Rows

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

# What stands for null: no checksum has more than 32 bits, and one in 2**64 hashes of keys is this.
_NULL: Final = 1 << 32
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MODULUS: Final = 1 << 64
# One for each column, so that a key and a value that change places are another row.
_SALTS: Final = tuple(np.uint64(0x9E3779B97F4A7C15 * number % _MODULUS) for number in range(6))


class RunningDigest:
    """Grows by the rows of one record batch after another."""

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
    """One number for each row, or one for all. A column that is not there is one without values."""
    topics = rows.topics
    yield np.uint64(crc32c(topics.encode())) if isinstance(topics, str) else _checksums([t.encode() for t in topics])
    yield _checksums(rows.values)
    yield _hashes(rows.keys) if rows.keys is not None else np.uint64(_NULL)
    yield _numbers(rows.partitions if rows.partitions is not None else [PARTITION_BY_KEY])
    yield _numbers(rows.timestamps_ms if rows.timestamps_ms is not None else [TIME_OF_WRITING])
    yield _checksums([_header_bytes(one) for one in (rows.headers if rows.headers is not None else [None])])


def _numbers(numbers: list[int]) -> Hashes:
    return np.array(numbers, np.int64).astype(np.uint64)


def _checksums(texts: list[bytes | None] | list[bytes]) -> Hashes:
    try:
        return np.fromiter(map(crc32c, texts), np.uint64, len(texts))  # type: ignore[arg-type]
    except TypeError:
        return np.fromiter((_NULL if text is None else crc32c(text) for text in texts), np.uint64, len(texts))


def _hashes(keys: list[bytes | None]) -> Hashes:
    """Keys are short: one call for all of them takes a third of the time of a checksum for each."""
    # Who has no rows, as the driver, need not wait for the import.
    from pandas.util import hash_array

    hashes: Hashes = hash_array(np.array(keys, object), categorize=False)
    # To pandas null and the text "None" are the same.
    hashes[[key is None for key in keys]] = _NULL
    return hashes


def _header_bytes(headers: Headers | None) -> bytes:
    return repr(headers).encode()


def _mixed(hashes: Hashes) -> Hashes:
    """The finisher of SplitMix64: without it, differences would cancel out in the sum."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _FIRST
    hashes = (hashes ^ (hashes >> np.uint64(27))) * _SECOND
    mixed: Hashes = hashes ^ (hashes >> np.uint64(31))
    return mixed
