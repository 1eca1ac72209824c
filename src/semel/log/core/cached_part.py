"""A part of a snapshot that seldom changes, and is worth encoding once for many checkpoints.

A busy broker writes a checkpoint every second, and each contains all access rules, users and quotas. Encoding ten
thousand rules again each time would take a tenth of its CPU. Nothing here may know what a part contains.
"""

from collections.abc import Callable
from typing import Any


class CachedPart:
    """A state machine puts the same object into each snapshot until its state changes."""

    __slots__ = ("_content",)

    def __init__(self, make: Callable[[], Any]) -> None:
        """`make` returns the part as a value that JSON can hold. It is called in the thread that writes the checkpoint,
        so it must not read anything that changes later.
        """
        self._content: Callable[[], Any] | bytes = make

    def encoded(self, encode: Callable[[Any], bytes]) -> bytes:
        """The part as JSON, which only the first caller has to encode."""
        content = self._content
        if not isinstance(content, bytes):
            content = self._content = encode(content())
        return content
