"""The rule of a sink's claim: whether a batch may be written, was written before, or must be refused.

Pure: what a sink holds comes in as an argument, and the sink has to have it locked from the look to the commit. A batch
is refused, never skipped and never written, where its rows may be in the sink in part: then a person has to decide.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

# What `accept_after` says of a sink that has claimed nothing yet.
NOTHING = "nothing"
MARK_DIGITS = 8


@dataclass(frozen=True)
class Batch:
    """Which micro-batch it is. `digest` stands for what it is made of: a replay has the same one, and a batch that was
    planned anew has another, even where a restored checkpoint gives it the same number."""

    query_id: str
    batch_id: int
    digest: str = ""


class Outcome(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


class BatchRefused(RuntimeError):
    """The rows of the batch were not written. The message says what is wrong, and how to go on on purpose."""


@dataclass(frozen=True)
class Claim:
    """The last batch that a sink has."""

    query: str
    """The id of the query, or what a sink that cannot keep text makes of it: see `judge`."""
    batch_id: int
    digest: str

    @property
    def mark(self) -> str:
        """A short name of exactly this claim: what a person hands back in order to go on after it."""
        told = hashlib.sha256(f"{self.query}\n{self.digest}".encode()).hexdigest()[:MARK_DIGITS]
        return f"{self.batch_id}-{told}"


def claim_of(batch: Batch) -> Claim:
    return Claim(batch.query_id, batch.batch_id, batch.digest)


def judge(sink: str, held: Claim | None, asked: Claim, accept_after: str | None) -> Outcome:
    """What becomes of the batch that `asked` claims, where `held` is the last one that the sink has.

    `accept_after` is the mark of one claim, or NOTHING: where the sink stands exactly there, any batch may follow. It
    can stay in a program: once a batch was accepted the sink stands elsewhere.
    """
    if held == asked:
        return Outcome.DUPLICATE
    if follows(held, asked) or accept_after == mark_of(held):
        return Outcome.ACCEPTED
    raise BatchRefused(
        f"sink {sink!r} refused batch {asked.batch_id} of query {asked.query}: {reason(held, asked)}. Nothing was "
        f"written. If the rows of this batch belong behind what the sink has, go on with "
        f"accept_after={mark_of(held)!r}"
    )


def follows(held: Claim | None, asked: Claim) -> bool:
    """Spark counts the batches of a query from 0, without holes."""
    if held is None:
        return asked.batch_id == 0
    return asked.query == held.query and asked.batch_id == held.batch_id + 1


def mark_of(held: Claim | None) -> str:
    return NOTHING if held is None else held.mark


def reason(held: Claim | None, asked: Claim) -> str:
    if held is None:
        return (
            f"a gap: the sink has claimed nothing so far, and the rows of batches 0 to {asked.batch_id - 1} "
            "never reached it (a sink that was added later, or whose claims are lost)"
        )
    if asked.query != held.query:
        return (
            f"its last batch, {held.batch_id}, is of another query, {held.query} (checkpoint lost or exchanged, or two "
            "queries under the name of one sink: sink_id=... tells them apart)"
        )
    if asked.batch_id > held.batch_id:
        return (
            f"a gap: its last batch is {held.batch_id}, and the rows of those between never reached it (a sink that "
            "was left out for a while, or a database restored from an old copy)"
        )
    if asked.batch_id == held.batch_id:
        return "it has a batch of this number that was planned at another time (an old checkpoint was restored)"
    return f"it is older than the last one it has, {held.batch_id} (an old checkpoint was restored)"
