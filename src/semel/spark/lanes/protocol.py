"""The rules of the sink into the log: whether a lane may write a batch, has written it, or must refuse it. Pure.

Rows go to the log in lanes. A lane has one writer at a time, because a writer that claims its transactional id fences
all earlier ones. A lane also has a marker, which says what it wrote last and commits in the transaction of the rows. A
writer has to read the marker after the fence; then the decision stays true until its own commit, or that commit fails.
No clock, no random numbers, no Spark, no broker. A claim that does not fit must be refused before a row is written,
with a message that says how to continue.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from semel.spark.claims import NOTHING, OTHER_QUERY, RESTORE, mark_before, mark_of

# How many batches a marker remembers. A replay needs one; with the others, an old batch of a zombie, or of a checkpoint
# that was set back a little, is recognised as a duplicate.
HISTORY_MAX: Final = 8


class Order(Enum):
    """How the batches of a sink follow each other. A sink always has the same order."""

    CONSECUTIVE = "consecutive"
    """The batches of a streaming query, whose numbers have no gaps."""
    RISING = "rising"
    """Batch writes that the user numbers: each number is higher than the last, and gaps are allowed."""
    SINGLE = "single"
    """Batch writes without numbers: each has its own id, and only attempts at the same write can be duplicates."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Stands for the rows of a lane in any order: their count, and the sum of their hashes."""

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
    """What an attempt wants to write. `lane_count` is None if Spark's own partitions are the lanes."""

    sink_id: str
    lane: int
    lane_count: int | None
    query_id: str
    batch_id: int
    order: Order = Order.CONSECUTIVE
    accept_after: str | None = None
    """A mark: if it is the mark of the lane's last batch, any batch may follow."""
    topic_id: str | None = None
    """The id of the topic that gets the rows, if there is only one, and it has an id."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batches that the lane has written, the newest last, and the settings with which it wrote them."""

    sink_id: str
    lane: int
    lane_count: int | None
    order: Order
    written: tuple[Written, ...]
    topic_id: str | None = None

    @property
    def newest(self) -> Written:
        return self.written[-1]


@dataclass(frozen=True, slots=True)
class Write:
    """The batch is new."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log. Its rows there have to be the same."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Refusal:
    """The claim does not fit what the lane has written: nothing may be written."""

    reason: str


Decision = Write | Duplicate | Refusal


def fence_of(claim: LaneClaim) -> str:
    """The transactional id of a lane."""
    return f"semel-lane-{claim.sink_id}-{claim.lane}"


def decide(marker: Marker | None, claim: LaneClaim) -> Decision:
    """The verdict on a claim, given the lane's marker as read after the fence."""
    if marker is None:
        return _decide_first(claim)
    refusal = misfit(marker, claim)
    if refusal is not None:
        return refusal
    known = _find(marker, claim)
    if known is not None and not is_made_anew(marker, claim):
        return Duplicate(known.digest)
    if claim.order is Order.SINGLE or _may_follow(marker, claim):
        return Write()
    return _decide_next(marker, claim)


def misfit(marker: Marker, claim: LaneClaim) -> Refusal | None:
    """Why the lane can never accept this claim: a claim that does not fit one marker does not fit any later one either.
    So this can be checked before the fence, without disturbing the lane's owner."""
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
    if is_made_anew(marker, claim) and not _may_follow(marker, claim):
        return Refusal(
            f"{_lane(claim)} has written up to batch {marker.newest.batch_id} into a topic that was deleted since, and "
            "the topic of that name is another one: those rows are gone. Choose from which offsets to go on, and do it "
            f"{_way_on(marker)}"
        )
    newest = marker.newest
    is_other_query = claim.order is Order.CONSECUTIVE and newest.query_id != claim.query_id
    if is_other_query and not _may_follow(marker, claim):
        return Refusal(
            f"{RESTORE}: {_lane(claim)} belongs to query {newest.query_id}, at batch {newest.batch_id}, and query "
            f"{claim.query_id} claims batch {claim.batch_id} ({OTHER_QUERY}). Otherwise choose from which offsets to "
            f"go on, and do it {_way_on(marker)}"
        )
    return None


def is_made_anew(marker: Marker, claim: LaneClaim) -> bool:
    """Whether the lane's rows were in a topic of the same name that was deleted. A marker outlives it, because it is in
    the progress topic.
    """
    ids = (marker.topic_id, claim.topic_id)
    return claim.order is not Order.SINGLE and None not in ids and ids[0] != ids[1]


def check(claim: LaneClaim, expected: Digest, actual: Digest) -> Refusal | None:
    """Refuses a duplicate whose rows differ from those that were written."""
    if expected == actual:
        return None
    remedy = f"{RESTORE}: " if claim.order is Order.CONSECUTIVE else ""
    return Refusal(
        f"{remedy}{_lane(claim)} has written batch {claim.batch_id} as {expected}, and the batch is {actual} now. "
        "Either an old checkpoint was restored and the batch was planned again, or the query gives other rows when it "
        "is computed again (rand, uuid, a table that changes), or rows changed their lane (another number of "
        "partitions: see semel.spark.lanes). Restore the newest checkpoint or the old plan; or, to accept what is in "
        "the log, go on from where it ends with a new checkpoint and a new sinkId"
    )


def advance(marker: Marker | None, claim: LaneClaim, digest: Digest) -> Marker:
    """The marker to commit with the rows."""
    # A batch that a person has accepted begins a new history, without the batches before it.
    before = marker.written if marker is not None and not _may_follow(marker, claim) else ()
    written = (*before, Written(claim.query_id, claim.batch_id, digest))[-HISTORY_MAX:]
    topic_id = claim.topic_id or (None if marker is None else marker.topic_id)
    return Marker(claim.sink_id, claim.lane, claim.lane_count, claim.order, written, topic_id)


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
    """The same for all lanes whose last batch is the same, whatever rows of it each lane has."""
    return mark_of(marker.newest.query_id, marker.newest.batch_id)


def _way_on(marker: Marker) -> str:
    return f"with option acceptAfter={_mark(marker)}, or under a new sinkId"


def _decide_next(marker: Marker, claim: LaneClaim) -> Decision:
    newest = marker.newest
    if claim.batch_id <= newest.batch_id:
        return Refusal(
            f"{RESTORE}: {_lane(claim)} is at batch {newest.batch_id} and no longer remembers batch {claim.batch_id} "
            "(an old checkpoint was restored, or a task came very late). Otherwise go on from where the log ends with "
            f"a new checkpoint, {_way_on(marker)}"
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
