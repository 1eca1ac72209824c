"""Counting the steps that Python takes, where a test holds their number: they are the same on every machine.

A step is an instruction of Python's byte code, so each item of a loop counts, and so does each of a comprehension. A
million of them take about 20 ms. What a single call does in C, such as copying a list, counts as one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def steps_of(work: Callable[[], Any]) -> int:
    """How many steps this takes."""
    gc.disable()
    try:
        return _monitored(work) if sys.version_info >= (3, 12) else _traced(work)
    finally:
        gc.enable()


def _monitored(work: Callable[[], Any]) -> int:
    """From Python 3.12 on; a trace function is not told of every instruction there."""
    count = 0
    monitoring = sys.monitoring

    def note(code: CodeType, offset: int) -> None:
        nonlocal count
        count += 1

    monitoring.use_tool_id(monitoring.PROFILER_ID, "steps")
    monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, note)
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION)
    try:
        work()
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.NO_EVENTS)
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    return count


def _traced(work: Callable[[], Any]) -> int:
    count = 0

    def note(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
