"""The rules of the sink into the log: may this lane write this batch, was it written, or does something not fit. Pure.

Rows go to the log in lanes. A lane has one writer at a time, because a transactional id fences all earlier ones, and a
marker: what the lane wrote last, committed in the transaction of the rows. The marker has to be read after the fence
is up; what is decided here then stays true until this writer's own commit, or that commit fails. No clock, no chance,
no Spark, no broker. A claim that does not fit must be refused before a row is written, and with the way out.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from semel.spark.claims import NOTHING, mark_before, mark_of

# How many batches a marker remembers. One is what a replay needs; the others tell a zombie, and a checkpoint that was
# set back a little, from one that belongs to another history.
HISTORY_MAX: Final = 8


class Order(Enum):
    """How the batches of a sink follow each other. A sink keeps to one."""

    CONSECUTIVE = "consecutive"
    """A streaming query: its batches have numbers without gaps."""
    RISING = "rising"
    """Batch writes that the user numbers: each number is higher than the last, and may leave some out."""
    SINGLE = "single"
    """Batch writes without numbers: each is a run of its own, and only its own attempts are told apart."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What the rows of a lane were, whatever their order: how many, and the sum of their hashes."""

    rows: int = 0
    sum: int = 0

    def __str__(self) -> str:
        return f"{self.rows} rows with digest {self.sum:016x}"


@dataclass(frozen=True, slots=True)
class Written:
    """One batch that a lane has written."""

    query_id: str
    batch_id: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class LaneClaim:
    """What an attempt wants to write. `lane_count` is None where Spark's own partitions are the lanes."""

    sink_id: str
    lane: int
    lane_count: int | None
    query_id: str
    batch_id: int
    order: Order = Order.CONSECUTIVE
    accept_after: str | None = None
    """A mark: where the lane stands exactly there, the batch may follow whatever it is."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What the lane has written, the newest last, and how it was asked to."""

    sink_id: str
    lane: int
    lane_count: int | None
    order: Order
    written: tuple[Written, ...]
    is_older: bool = False
    """It was written under the lane's older id: only a fence under that id stops its writer."""

    @property
    def newest(self) -> Written:
        return self.written[-1]


@dataclass(frozen=True, slots=True)
class Write:
    """The batch is new."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log. It has to have been the same rows."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Refusal:
    """The claim does not fit what the lane has written: nothing may be."""

    reason: str


Decision = Write | Duplicate | Refusal


def fence_of(claim: LaneClaim) -> str:
    """The transactional id of a lane."""
    return f"semel-lane-{claim.sink_id}-{claim.lane}"


def older_fence_of(claim: LaneClaim) -> str:
    """Its id before it had a prefix. A producer of the user may have the same name."""
    return f"{claim.sink_id}-{claim.lane}"


def decide(marker: Marker | None, claim: LaneClaim) -> Decision:
    """The verdict on a claim, given the lane's marker as it is after the fence."""
    if marker is None:
        return _decide_first(claim)
    refusal = misfit(marker, claim)
    if refusal is not None:
        return refusal
    known = _find(marker, claim)
    if known is not None:
        return Duplicate(known.digest)
    if claim.order is Order.SINGLE or _may_follow(marker, claim):
        return Write()
    return _decide_next(marker, claim)


def misfit(marker: Marker, claim: LaneClaim) -> Refusal | None:
    """Why the lane is not for this claim, whatever was written meanwhile: what this says of one marker it says of every
    later one. So it can be asked before the fence, and whose lane it is need not be disturbed."""
    if marker.order is not claim.order:
        return Refusal(
            f"{_lane(claim)} was written by {_KINDS[marker.order]}, and is now to be written by {_KINDS[claim.order]}: "
            "give each its own sinkId"
        )
    if marker.lane_count != claim.lane_count:
        return Refusal(
            f"{_lane(claim)} is one of {_count(marker.lane_count)}, and now of {_count(claim.lane_count)}: rows would "
            f"change their lane, and those of a batch that is half written would be lost or doubled. Go back to "
            f"{_count(marker.lane_count)}, or end the query when its last batch is committed and go on under a new "
            "sinkId with option acceptAfter"
        )
    newest = marker.newest
    is_other_query = claim.order is Order.CONSECUTIVE and newest.query_id != claim.query_id
    if is_other_query and not _may_follow(marker, claim):
        return Refusal(
            f"{_lane(claim)} belongs to query {newest.query_id}, at batch {newest.batch_id}, and query "
            f"{claim.query_id} claims batch {claim.batch_id}: the checkpoint was lost, or two queries share a sinkId. "
            f"Restore the checkpoint; or choose from which offsets to go on, and do it {_way_on(marker)}"
        )
    return None


def check(claim: LaneClaim, expected: Digest, actual: Digest) -> Refusal | None:
    """Whether a duplicate is one: the same rows as were written."""
    if expected == actual:
        return None
    return Refusal(
        f"{_lane(claim)} has written batch {claim.batch_id} as {expected}, and the batch is {actual} now. Either an "
        "old checkpoint was restored and the batch was planned again, or the query gives other rows when it is "
        "computed again (rand, uuid, a table that changes), or rows changed their lane (another number of partitions: "
        "see semel.spark.lanes). Restore the newest checkpoint or the old plan; or, to accept what is in the log, go "
        "on from where it ends with a new checkpoint and a new sinkId"
    )


def advance(marker: Marker | None, claim: LaneClaim, digest: Digest) -> Marker:
    """The marker that is committed with the rows."""
    # After a batch that a person has accepted, another history begins, which has no markers of the one before.
    before = marker.written if marker is not None and not _may_follow(marker, claim) else ()
    written = (*before, Written(claim.query_id, claim.batch_id, digest))[-HISTORY_MAX:]
    return Marker(claim.sink_id, claim.lane, claim.lane_count, claim.order, written)


def _decide_first(claim: LaneClaim) -> Decision:
    if claim.order is not Order.CONSECUTIVE or claim.batch_id == 0:
        return Write()
    mark = mark_before(claim.batch_id)
    if claim.accept_after in (NOTHING, mark):
        return Write()
    return Refusal(
        f"{_lane(claim)} has no marker, so its first batch would be 0, and the query is at batch {claim.batch_id}: the "
        f"progress topic was lost, or the sinkId is new to this query. If batch {claim.batch_id} was never begun under "
        f"another sinkId, set option acceptAfter={mark}"
    )


def _may_follow(marker: Marker, claim: LaneClaim) -> bool:
    return claim.accept_after == _mark(marker)


def _mark(marker: Marker) -> str:
    """The same for all lanes that stand at the same batch, whatever rows each of them has of it."""
    return mark_of(marker.newest.query_id, marker.newest.batch_id)


def _way_on(marker: Marker) -> str:
    return f"with option acceptAfter={_mark(marker)}, or under a new sinkId"


def _decide_next(marker: Marker, claim: LaneClaim) -> Decision:
    newest = marker.newest
    if claim.batch_id <= newest.batch_id:
        return Refusal(
            f"{_lane(claim)} is at batch {newest.batch_id} and no longer remembers batch {claim.batch_id}: an old "
            "checkpoint was restored, or a task came very late. Restore the newest checkpoint; or go on from where "
            f"the log ends with a new checkpoint, {_way_on(marker)}"
        )
    if claim.order is Order.CONSECUTIVE and claim.batch_id > newest.batch_id + 1:
        return Refusal(
            f"{_lane(claim)} is at batch {newest.batch_id}, and batch {claim.batch_id} leaves a gap: the progress "
            "topic lost markers, or the query wrote under another sinkId meanwhile. If that batch was never begun, go "
            f"on {_way_on(marker)}"
        )
    return Write()


def _find(marker: Marker, claim: LaneClaim) -> Written | None:
    for written in reversed(marker.written):
        if (written.query_id, written.batch_id) == (claim.query_id, claim.batch_id):
            return written
    return None


def _lane(claim: LaneClaim) -> str:
    return f"lane {claim.lane} of sink {claim.sink_id!r}"


def _count(lanes: int | None) -> str:
    return "Spark's own partitions" if lanes is None else f"{lanes} lanes"


_KINDS: Final = {
    Order.CONSECUTIVE: "a streaming query",
    Order.RISING: "numbered batch writes",
    Order.SINGLE: "batch writes without numbers",
}
