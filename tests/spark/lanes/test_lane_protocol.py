"""The rules of the lanes: which claim is written, which is a duplicate, and which is refused with which way out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.spark.claims import RESTORE
from semel.spark.lanes import progress
from semel.spark.lanes.protocol import (
    HISTORY_MAX,
    Digest,
    Duplicate,
    LaneClaim,
    Marker,
    Order,
    Refusal,
    Write,
    advance,
    check,
    decide,
)

CLAIM = LaneClaim("sink", 0, 2, "q", 0)


def marker_after(count: int, claim: LaneClaim = CLAIM) -> Marker | None:
    """What a lane has that has written so many batches."""
    marker = None
    for batch in range(count):
        marker = advance(marker, replace(claim, batch_id=batch), Digest(batch, batch))
    return marker


def refusal(marker: Marker | None, claim: LaneClaim) -> str:
    decision = decide(marker, claim)
    assert isinstance(decision, Refusal)
    return decision.reason


@given(st.integers(0, 30), st.integers(0, 40))
def test_a_stream_is_written_batch_by_batch_and_each_batch_once(written: int, batch: int) -> None:
    decision = decide(marker_after(written), replace(CLAIM, batch_id=batch))
    if batch == written:
        assert decision == Write()
    elif max(written - HISTORY_MAX, 0) <= batch < written:
        assert decision == Duplicate(Digest(batch, batch))
    else:
        assert isinstance(decision, Refusal)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (replace(CLAIM, batch_id=12), "leaves a gap"),
        (replace(CLAIM, batch_id=1), f"{RESTORE}: lane 0 of sink 'sink' is at batch 9 and no longer remembers batch 1"),
        (replace(CLAIM, query_id="r"), f"{RESTORE}: lane"),
        (replace(CLAIM, batch_id=10, lane_count=3), "is one of 2 lanes, and now of 3 lanes"),
        (replace(CLAIM, batch_id=10, lane_count=None), "now of Spark's own partitions"),
        (replace(CLAIM, batch_id=10, order=Order.RISING), "give each its own sinkId"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(claim: LaneClaim, expected: str) -> None:
    assert expected in refusal(marker_after(10), claim)


def test_a_lane_without_a_marker_begins_with_the_first_batch_only() -> None:
    assert decide(None, CLAIM) == Write()
    assert "set option acceptAfter=nothing-7" in refusal(None, replace(CLAIM, batch_id=7))
    assert decide(None, replace(CLAIM, batch_id=7, accept_after="nothing-7")) == Write()
    assert "its first batch would be 0" in refusal(None, replace(CLAIM, batch_id=8, accept_after="nothing-7"))


@pytest.mark.parametrize(
    "claim", [replace(CLAIM, batch_id=12), replace(CLAIM, batch_id=0), replace(CLAIM, query_id="r")]
)
def test_whatever_is_refused_may_follow_where_the_refusal_says_so_and_nowhere_else(claim: LaneClaim) -> None:
    """As in a sink into a table: the mark is of one claim, and means nothing once the lane stands elsewhere."""
    marker = marker_after(10)
    [mark] = re.findall(r"option acceptAfter=(\S+),", refusal(marker, claim))
    told = replace(claim, accept_after=mark)
    assert decide(marker, told) == Write()
    assert isinstance(decide(marker_after(9), told), Refusal)
    assert isinstance(decide(marker_after(11), told), Refusal)
    after = advance(marker, told, Digest(1, 1))
    assert decide(after, told) == Duplicate(Digest(1, 1))
    assert decide(after, replace(told, batch_id=claim.batch_id + 1)) == Write()
    assert isinstance(decide(after, replace(CLAIM, batch_id=9)), Refusal), "a task of the history before"


@pytest.mark.parametrize(
    "claim", [replace(CLAIM, batch_id=12), replace(CLAIM, batch_id=0), replace(CLAIM, query_id="r")]
)
def test_the_mark_of_a_lane_that_begins_lets_nothing_follow_once_the_lane_has_a_marker(claim: LaneClaim) -> None:
    """It stays in the program: a query that lost its checkpoint later would write all its rows a second time."""
    for mark in ("nothing", f"nothing-{claim.batch_id}"):
        assert isinstance(decide(marker_after(10), replace(claim, accept_after=mark)), Refusal)


def test_lanes_that_stand_at_the_same_batch_have_the_same_mark_whatever_rows_they_have() -> None:
    later = replace(CLAIM, query_id="r")
    one, other = (advance(None, CLAIM, Digest(rows, rows)) for rows in (1, 2))
    assert refusal(one, later) == refusal(other, later)


def test_a_duplicate_with_other_rows_is_refused() -> None:
    assert check(CLAIM, Digest(3, 5), Digest(3, 5)) is None
    found = check(CLAIM, Digest(3, 5), Digest(4, 5))
    assert found is not None
    said = "lane 0 of sink 'sink' has written batch 0 as 3 rows with digest 0000000000000005, and the batch is 4 rows"
    assert found.reason.startswith(f"{RESTORE}: {said}")
    alone = check(replace(CLAIM, order=Order.RISING, query_id=""), Digest(3, 5), Digest(4, 5))
    assert alone is not None
    assert alone.reason.startswith(said)


def test_numbered_batch_writes_may_leave_numbers_out_but_never_go_back() -> None:
    claim = replace(CLAIM, order=Order.RISING, query_id="")
    marker = advance(None, replace(claim, batch_id=10), Digest(1, 1))
    assert decide(marker, replace(claim, batch_id=20)) == Write()
    assert decide(marker, replace(claim, batch_id=10)) == Duplicate(Digest(1, 1))
    assert "no longer remembers batch 9" in refusal(marker, replace(claim, batch_id=9))


def test_a_batch_write_without_a_number_is_told_from_its_own_attempts_only() -> None:
    claim = replace(CLAIM, order=Order.SINGLE, query_id="run 1")
    marker = advance(None, claim, Digest(1, 1))
    assert decide(marker, claim) == Duplicate(Digest(1, 1))
    assert decide(marker, replace(claim, query_id="run 2")) == Write()


def test_a_batch_for_which_no_broker_says_the_id_of_the_topic_leaves_the_known_one_in_the_marker() -> None:
    """Or a topic that is made anew after it would be taken for the old one."""
    marker = advance(None, replace(CLAIM, topic_id="old"), Digest())
    marker = advance(marker, replace(CLAIM, batch_id=1), Digest())
    assert "a topic that was deleted since" in refusal(marker, replace(CLAIM, batch_id=2, topic_id="new"))


@given(st.integers(1, 20))
def test_a_marker_is_read_as_it_was_written(written: int) -> None:
    marker = marker_after(written)
    assert marker is not None
    assert len(marker.written) == min(written, HISTORY_MAX)
    assert progress.decode(progress.encode(marker)) == marker


@pytest.mark.parametrize("value", [b"", b"{}", b"no json", b'{"format": 4}', b'{"format": 1, "sinkId": "s"}', b"[]"])
def test_what_is_no_marker_is_refused(value: bytes) -> None:
    with pytest.raises(progress.ProgressRefused):
        progress.decode(value)
