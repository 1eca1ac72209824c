"""Digests that stand in for very long ids: anybody may send an id of megabytes, which would be hashed eight bytes at a
time.

A stand-in is a keyed digest. It equals another stand-in, or the bytes of a short id, with a probability of about
2**-256, as long as nobody who chooses ids knows the key; all sums of an audit depend on that. A stand-in must never be
shown to a person, or be used where ids themselves are compared.
"""

from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Longer than any real id. Shorter ids are hashed side by side, all of one length together.
LENGTH_MAX: Final = 1024
_PURPOSE: Final = b"semel: long id"


def shortened(ids: Any, key: bytes) -> Any:
    """The values of an Arrow array of bytes that holds no null, with stand-ins for the very long ones."""
    is_long = pc.greater(pc.binary_length(ids), LENGTH_MAX)
    if not pc.any(is_long).as_py():
        return ids
    stand_ins = [
        blake2b(ids[int(row)].as_buffer(), key=key, person=_PURPOSE).digest()
        for row in np.flatnonzero(is_long.to_numpy(zero_copy_only=False))
    ]
    return pc.replace_with_mask(ids, is_long, pa.array(stand_ins, ids.type))
