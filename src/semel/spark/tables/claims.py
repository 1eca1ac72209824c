"""The rule of a sink's claim: whether a batch may be written, was written before, or must be refused.

Pure: the claim that a sink holds comes in as an argument, and the sink has to lock it from this check until the commit.
If only a part of a batch's rows may be in the sink, the batch is refused, neither skipped nor written: then a person
has to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semel.spark.claims import NOTHING, OTHER_QUERY, RESTORE, Batch, BatchRefused, Outcome, mark_before, mark_of


@dataclass(frozen=True)
class TableClaim:
    """The last batch that a sink has committed."""

    query_id: str
    """The id of the query, or a number that stands for it in a sink that cannot keep text."""
    batch_id: int
    digest: str


def claim_of(batch: Batch) -> TableClaim:
    return TableClaim(batch.query_id, batch.batch_id, batch.digest)


def judge(
    sink: str,
    held: TableClaim | None,
    claim: TableClaim,
    accept_after: str | None,
    state: Sequence[str] = (),
    afresh: str = "",
) -> Outcome:
    """The verdict on the batch that `claim` claims, if `held` is the last one that the sink has.

    `accept_after` is a mark: if it is the mark of the held claim, any batch may follow. It can stay in a program: once
    a batch was accepted, the sink holds another claim. It is refused if the query keeps `state` and is another one than
    the sink's last: `afresh` says how a sink begins again.
    """
    if held == claim:
        return Outcome.DUPLICATE
    if follows(held, claim):
        return Outcome.ACCEPTED
    remedy = f"{RESTORE}: " if is_of_checkpoint(held, claim) else ""
    refusal = (
        f"{remedy}sink {sink!r} refused batch {claim.batch_id} of query {claim.query_id}: {reason(held, claim)}. "
        "Nothing was written."
    )
    if held is not None and held.query_id != claim.query_id and state:
        raise BatchRefused(f"{refusal} {state_lost(state, afresh)}")
    marks = (NOTHING, mark_before(claim.batch_id)) if held is None else (_mark(held),)
    if accept_after in marks:
        return Outcome.ACCEPTED
    raise BatchRefused(
        f"{refusal} If the rows of this batch belong after what the sink has, go on with accept_after={marks[-1]!r}"
    )


def state_lost(state: Sequence[str], afresh: str) -> str:
    """What to do if a query that keeps state has lost its checkpoint."""
    return (
        f"The query keeps state ({', '.join(state)}), which was lost with its checkpoint, so accept_after is not "
        "enough: totals would begin again at nothing, and ids that were seen would be new. Let the new query begin at "
        "offsets before everything that the state held (the oldest window that is still open, the oldest id within "
        f"the watermark); before its first batch, {afresh}"
    )


def follows(held: TableClaim | None, claim: TableClaim) -> bool:
    """Spark counts the batches of a query from 0, without holes."""
    if held is None:
        return claim.batch_id == 0
    return claim.query_id == held.query_id and claim.batch_id == held.batch_id + 1


def _mark(held: TableClaim) -> str:
    return mark_of(held.query_id, held.batch_id, held.digest)


def is_of_checkpoint(held: TableClaim | None, claim: TableClaim) -> bool:
    """Whether the checkpoint is another one than at the last batch. A gap has other causes."""
    return held is not None and (held.query_id != claim.query_id or claim.batch_id <= held.batch_id)


def reason(held: TableClaim | None, claim: TableClaim) -> str:
    if held is None:
        return (
            f"a gap: the sink has claimed nothing so far, and the rows of batches 0 to {claim.batch_id - 1} "
            "never reached it (a sink that was added later, or whose claims are lost)"
        )
    if claim.query_id != held.query_id:
        return (
            f"its last batch, {held.batch_id}, is of another query, {held.query_id} ({OTHER_QUERY}: sink_id=... tells "
            "them apart)"
        )
    if claim.batch_id > held.batch_id:
        return (
            f"a gap: its last batch is {held.batch_id}, and the rows of those between are not in it (a sink that was "
            "left out for a while, or a database or table that was restored to an older state)"
        )
    if claim.batch_id == held.batch_id:
        return "it has a batch of this number that was planned at another time (an old checkpoint was restored)"
    return f"it is older than the last one it has, {held.batch_id} (an old checkpoint was restored)"
