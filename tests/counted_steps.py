"""Counting the steps that Python takes, where a test holds their number: they are the same on every machine.

A step is an instruction of Python's byte code, so each item of a loop counts, and so does each of a comprehension. A
million of them take about 20 ms. What a single call does in C, such as copying a list, counts as one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(work: Callable[[], Any]) -> int:
    """How many steps this takes."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count += 1
        return note

    before = sys.gettrace()
    gc.disable()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count
