"""The bucket of an id: a keyed hash for a small part of the work of SipHash.

The second reading of an audit needs no more of all the ids that agree. Each word of an id is multiplied by a secret odd
number of its own, and the upper bits of the sum are the bucket: Dietzfelbinger's multiply-shift. So ids are spread over
all buckets, and nobody who lacks the key can choose many that share one; if they did, an audit would take longer, and
be as right. Nothing that an audit finds may ever rest on this hash: whether buckets agree is what the sums of SipHash
say, and these have no part of its secret numbers.
"""

import hashlib
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from semel.audit.words import WORD_BYTES, Words

_PURPOSE: Final = b"semel audit: buckets"
_WORD_BITS: Final = 8 * WORD_BYTES


def buckets_of(words: list[Words], key: bytes, buckets: int) -> npt.NDArray[np.int64]:
    """The buckets of ids that are given as their words; how many buckets there are is a power of two."""
    total = np.zeros_like(words[0])
    product = np.empty_like(total)
    for word, factor in zip(words, _factors(key, len(words)), strict=True):
        np.multiply(word, factor, out=product)
        total += product
    bits = buckets.bit_length() - 1
    # In two steps, because a word cannot be shifted by all its bits, as it is where there is one bucket.
    total >>= np.uint64(1)
    total >>= np.uint64(_WORD_BITS - 1 - bits)
    return total.view(np.int64)


@lru_cache(maxsize=16)
def _factors(key: bytes, count: int) -> Words:
    numbers = np.frombuffer(hashlib.shake_256(_PURPOSE + key).digest(count * WORD_BYTES), "<u8")
    return numbers.astype(np.uint64) | np.uint64(1)
