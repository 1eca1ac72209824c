"""The partition of a row that names none: by its key as in Java's clients, and without a key by turns.

The keys of all rows are hashed at once, a word of each at a time. This file must never place a key elsewhere than
Java's clients do, or the rows of a key would be in two partitions, and so in no order.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from semel.client.arrow.encoding import fields_of
from semel.client.arrow.layout import Fields, Integers, Octets

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)
# This removes the sign bit of a hash.
_PLACE_MASK: Final = np.uint32(0x7FFFFFFF)
_WORD_MASK: Final = 0xFFFFFFFF

# A longer key is hashed alone: few keys are as long, and for few keys a step of numpy is expensive.
LONG_KEY_BYTES: Final = 1024

# How many rows without a key go to one partition before the next one has its turn: a batch should be worth its header.
TURN_ROWS_MIN: Final = 500


def murmur2(keys: Any) -> NDArray[np.uint32]:
    """The hash of each key, as in Java's clients; a number without a meaning for a row without a key."""
    octets, fields = fields_of(keys)
    longer = np.flatnonzero(fields.lengths > LONG_KEY_BYTES)
    if not len(longer):
        return _hashes_of_short(octets, fields)
    hashes = np.empty(len(fields.lengths), np.uint32)
    for row in longer.tolist():
        start = fields.starts[row]
        hashes[row] = _hash_of_long(octets[start : start + fields.lengths[row]])
    shorter = np.flatnonzero(fields.lengths <= LONG_KEY_BYTES)
    hashes[shorter] = _hashes_of_short(octets, Fields(fields.starts[shorter], fields.lengths[shorter]))
    return hashes


def _hashes_of_short(octets: Octets, fields: Fields) -> NDArray[np.uint32]:
    words = Words(octets, fields, np.dtype("<u4"))
    hashes = _SEED ^ words.lengths.astype(np.uint32)
    for first, word in words:
        mixed = _mixed(word)
        hashes[first:] *= _FACTOR
        hashes[first:] ^= mixed
    return words.in_order(_finished(hashes, words.rests, words.rest_lengths))


def _hash_of_long(key: Octets) -> np.uint32:
    """One key alone: its words are mixed all at once, and then added to the hash one by one."""
    whole = len(key) // 4 * 4
    factor, hashed = int(_FACTOR), int(_SEED) ^ len(key)
    for word in _mixed(np.frombuffer(key[:whole].tobytes(), "<u4")).tolist():
        hashed = (hashed * factor & _WORD_MASK) ^ word
    rest = int.from_bytes(key[whole:].tobytes(), "little")
    one = _finished(np.array([hashed], np.uint32), np.array([rest], np.uint32), np.array([len(key) - whole]))
    return np.uint32(one[0])


def _mixed(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed = words * _FACTOR
    mixed ^= mixed >> np.uint32(24)
    mixed *= _FACTOR
    return mixed


def _finished(hashes: NDArray[np.uint32], rests: NDArray[np.uint32], rest_lengths: Integers) -> NDArray[np.uint32]:
    finished = np.where(rest_lengths > 0, (hashes ^ rests) * _FACTOR, hashes)
    finished ^= finished >> np.uint32(13)
    finished *= _FACTOR
    finished ^= finished >> np.uint32(15)
    return finished


def place_of_keys(hashes: NDArray[np.uint32], count: int | Integers) -> Integers:
    """The partition of each hash, out of `count`, which may be one number or one for each hash."""
    # Dividing numbers of 32 bits takes half the time.
    return ((hashes & _PLACE_MASK) % np.asarray(count, np.uint32)).astype(np.int64)


class Turns:
    """Whose turn it is, among the partitions of each topic, to get rows that have no key."""

    def __init__(self, first: Callable[[int], int] = random.randrange) -> None:
        self._first = first
        self._next: dict[str, int] = {}

    def places(self, topic: str, rows: int, count: int) -> Integers:
        """The partition of each of these rows: runs of rows for one partition after the other, from where the last call
        ended.
        """
        run = max(TURN_ROWS_MIN, -(-rows // count))
        first = self._next[topic] if topic in self._next else self._first(count)
        self._next[topic] = (first + -(-rows // run)) % count
        return (first + np.arange(rows) // run) % count


class Words:
    """Fields cut into words, for hashes that take the same word of every field at a time.

    Fields are sorted by length here, so that the fields with one more word are always the last ones.
    """

    def __init__(self, octets: Octets, fields: Fields, kind: np.dtype[Any]) -> None:
        self._size = kind.itemsize
        lengths = np.maximum(fields.lengths, 0)
        is_sorted = len(lengths) == 0 or int(lengths.min()) == int(lengths.max())
        self._order = None if is_sorted else order_of(lengths)
        self._starts = fields.starts if self._order is None else fields.starts[self._order]
        self.lengths: Integers = lengths if self._order is None else lengths[self._order]
        self.rest_lengths: Integers = self.lengths % self._size
        if len(octets) < self._size:
            octets = np.concatenate((octets, np.zeros(self._size, np.uint8)))
        self._octets = octets
        self._view = _words_at_all_places(octets, kind)
        self.rests = self._rests(kind)

    def __iter__(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """For each word: the first field that has it, and the word of this field and of all after it."""
        if not len(self.lengths):
            return
        counts = self.lengths // self._size
        firsts = np.searchsorted(counts, np.arange(int(counts[-1])), "right").tolist()
        for place, first in enumerate(firsts):
            yield first, self._view[self._starts[first:] + place * self._size]

    def in_order(self, hashes: NDArray[Any]) -> NDArray[Any]:
        """One number for each field, brought back into the order that the fields had."""
        if self._order is None:
            return hashes
        ordered = np.empty_like(hashes)
        ordered[self._order] = hashes
        return ordered

    def _rests(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """The bytes after the last whole word, as a number: the word that ends there, without the bytes before them."""
        if not bool(self.rest_lengths.any()):
            return np.zeros(len(self.lengths), kind)
        ends = self._starts + self.lengths
        words: NDArray[Any] = self._view[np.maximum(ends - self._size, 0)]
        early = np.flatnonzero(ends < self._size)
        if len(early):
            padded = np.concatenate((np.zeros(self._size, np.uint8), self._octets[: self._size]))
            words[early] = _words_at_all_places(padded, kind)[ends[early]]
        # In two steps, because a number cannot be shifted by all its bits.
        words >>= (8 * (self._size - 1 - self.rest_lengths)).astype(kind)
        words >>= kind.type(8)
        return words


def order_of(numbers: Integers) -> Integers:
    """The order of numbers from 0 on, in which equal ones stay as they are. numpy sorts numbers of one or two bytes in
    a fraction of the time."""
    order: Integers = np.argsort(numbers.astype(np.min_scalar_type(int(numbers.max()))), kind="stable")
    return order


def _words_at_all_places(octets: Octets, kind: np.dtype[Any]) -> NDArray[Any]:
    return np.ndarray((len(octets) - kind.itemsize + 1,), kind, np.ascontiguousarray(octets), strides=(1,))
