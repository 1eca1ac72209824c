"""The words in which every sink claims a batch, into tables and into the log, and the one way to go on on purpose.

A sink has a `sink_id`, and holds the last claim that it accepted. What does not follow that claim is refused, and the
refusal names a mark: `accept_after` with this mark lets one batch follow, exactly where the sink still stands there.
Pure. This file must never know what a sink is made of.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

# The mark of a sink that has claimed nothing: alone, or with the one batch that may be the first.
NOTHING: Final = "nothing"
_MARK_DIGITS: Final = 8
_MARK: Final = re.compile(rf"{NOTHING}(-\d{{1,18}})?|\d{{1,18}}-[0-9a-f]{{{_MARK_DIGITS}}}")


@dataclass(frozen=True)
class Batch:
    """A micro-batch. `digest` stands for its content: a replay has the same one, and a batch that was planned again has
    another, even if a restored checkpoint gives it the same number."""

    query_id: str
    batch_id: int
    digest: str = ""


class Outcome(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


class BatchRefused(RuntimeError):
    """The rows of the batch were not written. The message says what is wrong, and how to go on on purpose."""


def mark_of(query_id: str, batch_id: int, digest: str = "") -> str:
    """A short name of exactly this claim: what a person hands back in order to go on after it."""
    mark = hashlib.sha256(f"{query_id}\n{digest}".encode()).hexdigest()[:_MARK_DIGITS]
    return f"{batch_id}-{mark}"


def mark_before(batch_id: int) -> str:
    """The mark of a sink that has claimed nothing, for this batch alone to be its first."""
    return f"{NOTHING}-{batch_id}"


def is_mark(text: str) -> bool:
    return _MARK.fullmatch(text) is not None
