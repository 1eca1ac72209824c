"""What a batch leaves in the driver when it is done, and when that goes.

Whatever of Java's Python has called a method of refers to itself (py4j keeps the methods with the object), so it goes
when Python looks for cycles among its old objects: in a large program that is after hundreds of batches. Until then
Java keeps the plan and the session of each of them, and the files of its shuffles. This module must never throw away
what anybody can still reach.
"""

from __future__ import annotations

import gc
from typing import Final

# To look takes about 40 ms where there are 100,000 objects, so not after each.
BATCHES_LEFT_MAX: Final = 16


def let_go(batch_id: int) -> None:
    """After a batch: throws away what it and those before it have left, once in BATCHES_LEFT_MAX batches."""
    if batch_id % BATCHES_LEFT_MAX == BATCHES_LEFT_MAX - 1:
        gc.collect()
