"""Many ids at once as words of eight bytes: the first words of all ids are one array, the second words another.

The last word of an id holds the bytes that are left, at most seven, and the length, as in SipHash. Two ids have the
same words if, and only if, they have the same bytes, wherever they are in memory; nothing here may ever let bytes
beside an id into its words.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
# The positions of ids in an array: a range, or single ones.
Places = slice | npt.NDArray[np.intp]

WORD_BYTES: Final = 8
# With this many ids, all working arrays fit into a core's second cache; half or twice as many were slower.
CHUNK_ROWS: Final = 16_384

_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES)], dtype=np.uint64)


def in_words(ids: Any) -> Iterator[tuple[Places, list[Words]]]:
    """The values of an Arrow array of bytes that holds no null, chunk by chunk, with their positions in it. Ids with
    equally many words come together.
    """
    for begin in range(0, len(ids), CHUNK_ROWS):
        chunk = ids.slice(begin, CHUNK_ROWS)
        _, offsets_buffer, data = chunk.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32, len(chunk) + 1, chunk.offset * 4)
        lengths = np.diff(offsets)
        word_at = _words_at(data, int(offsets[0]), int(offsets[-1]))
        whole = slice(begin, begin + len(chunk))
        if lengths[0] and lengths.min() == lengths.max():
            yield whole, _words_of_one_length(word_at, lengths)
            continue
        starts = offsets[:-1].astype(np.intp) - offsets[0]
        word_counts = lengths // WORD_BYTES
        if word_counts.min() == word_counts.max():
            yield whole, _words_of_one_count(word_at, starts, lengths)
            continue
        for word_count in np.unique(word_counts):
            rows = np.flatnonzero(word_counts == word_count)
            yield begin + rows, _words_of_one_count(word_at, starts[rows], lengths[rows])


def length_word(length: int) -> np.uint64:
    """The last word if no bytes are left."""
    return np.uint64((length & 0xFF) << 56)


def _words_at(data: Any, begin: int, end: int) -> Words:
    """The word that begins at each byte, and at the end; a word may hold any bytes from after the end."""
    if data is None or data.size < end + WORD_BYTES:
        padded = np.zeros(end - begin + WORD_BYTES, np.uint8)
        if end > begin:
            padded[: end - begin] = np.frombuffer(data, np.uint8, end - begin, begin)
        data, begin, end = padded, 0, end - begin
    return np.ndarray((end - begin + 1,), "<u8", buffer=data, offset=begin, strides=(1,))


def _words_of_one_length(word_at: Words, lengths: npt.NDArray[np.int32]) -> list[Words]:
    """The words of ids that lie one after the other and all have one length, so that their positions are known."""
    length = int(lengths[0])
    stop = length * (len(lengths) - 1) + 1
    words = [word_at[at : at + stop : length].copy() for at in range(0, length + 1, WORD_BYTES)]
    return _closed(words, lengths[0])


def _words_of_one_count(word_at: Words, starts: npt.NDArray[np.intp], lengths: npt.NDArray[np.int32]) -> list[Words]:
    return _closed([word_at[at:][starts] for at in range(0, int(lengths[0]) + 1, WORD_BYTES)], lengths)


def _closed(words: list[Words], lengths: Any) -> list[Words]:
    """Reduce the last word to the bytes that belong to the id, and add the length."""
    last = words[-1]
    last &= _MASKS[lengths % WORD_BYTES]
    last |= (lengths & 0xFF).astype(np.uint64) << np.uint64(56)
    return words
