"""Counting the calls that Python makes, where a test holds their number."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def profiled(note: Callable[[FrameType, str, Any], object]) -> Iterator[None]:
    """Tell `note` of each call in this thread. There is no collection of garbage meanwhile: it would call what earlier
    tests have left."""
    gc.disable()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        gc.enable()
