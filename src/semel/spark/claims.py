"""The types with which every sink, into tables and into the log, claims a batch, and the marks with which a person lets
a refused batch follow.

A sink has a `sink_id`, and holds the last claim that it accepted. A batch that does not follow that claim is refused,
and the refusal names a mark: `accept_after` with this mark lets one batch follow, as long as that claim is still the
sink's last. Pure. This file must never depend on how a sink stores rows.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

# The mark of a sink that has claimed nothing: alone, or followed by the number of the one batch that may be the first.
NOTHING: Final = "nothing"
_MARK_DIGITS: Final = 8
# How each refusal begins of which the checkpoint is the likely cause.
RESTORE: Final = "restore the checkpoint, or check checkpointLocation"
# What may have happened if the sink's last batch is of another query.
OTHER_QUERY: Final = "the checkpoint was lost or exchanged, or two queries write under the name of one sink"
_MARK: Final = re.compile(rf"{NOTHING}(-\d{{1,18}})?|\d{{1,18}}-[0-9a-f]{{{_MARK_DIGITS}}}")


@dataclass(frozen=True)
class Batch:
    """A micro-batch. `digest` stands for its content: a replay has the same digest, and a batch that was planned again
    has another one, even if a restored checkpoint gives it the same number."""

    query_id: str
    batch_id: int
    digest: str = ""
    output_mode: str | None = None
    """The output mode of the query: append, update or complete; None if nobody knows."""
    state: tuple[str, ...] = ()
    """The operators of the query that keep state from batch to batch, such as an aggregation."""


class Outcome(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


class BatchRefused(RuntimeError):
    """The rows of the batch were not written. The message says what is wrong, and how to continue all the same."""


def mark_of(query_id: str, batch_id: int, digest: str = "") -> str:
    """A short name of exactly this claim. A person passes it as `accept_after` to continue after the claim."""
    mark = hashlib.sha256(f"{query_id}\n{digest}".encode()).hexdigest()[:_MARK_DIGITS]
    return f"{batch_id}-{mark}"


def mark_before(batch_id: int) -> str:
    """The mark that lets only this batch be the first of a sink that has claimed nothing."""
    return f"{NOTHING}-{batch_id}"


def is_mark(text: str) -> bool:
    return _MARK.fullmatch(text) is not None
