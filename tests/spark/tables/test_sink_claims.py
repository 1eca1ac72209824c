"""The rule of a sink's claim, against a naive model: one that keeps all batches that were ever written."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.spark.claims import NOTHING, RESTORE, BatchRefused, Outcome, is_mark, mark_before, mark_of
from semel.spark.tables.claims import TableClaim, judge

claims = st.builds(TableClaim, st.sampled_from(["q", "r"]), st.integers(0, 4), st.sampled_from(["a", "b"]))


@dataclass
class Model:
    """Keeps everything. A batch may follow what is there exactly if it is the next one of the query whose batches are
    there, all of them."""

    written: list[TableClaim] = field(default_factory=list)

    def expected(self, asked: TableClaim) -> Outcome | None:
        if asked in self.written[-1:]:
            return Outcome.DUPLICATE
        last = self.written[-1] if self.written else TableClaim(asked.query_id, -1, "")
        next_one = (last.query_id, last.batch_id + 1)
        return Outcome.ACCEPTED if (asked.query_id, asked.batch_id) == next_one else None


@given(st.lists(claims, max_size=30))
def test_a_batch_is_accepted_a_duplicate_or_refused_as_one_who_kept_all_batches_would_say(
    history: list[TableClaim],
) -> None:
    model = Model()
    held: TableClaim | None = None
    for asked in history:
        expected = model.expected(asked)
        if expected is None:
            with pytest.raises(BatchRefused):
                judge("sink", held, asked, accept_after=None)
            continue
        assert judge("sink", held, asked, accept_after=None) is expected
        if expected is Outcome.ACCEPTED:
            model.written.append(asked)
            held = asked
    assert [claim.batch_id for claim in model.written] == list(range(len(model.written)))


@given(st.none() | claims, claims)
def test_whatever_is_refused_may_follow_where_the_refusal_says_so_and_nowhere_else(
    held: TableClaim | None, asked: TableClaim
) -> None:
    with suppress(BatchRefused):
        judge("sink", held, asked, accept_after=None)
        return
    with pytest.raises(BatchRefused) as refused:
        judge("sink", held, asked, accept_after=None)
    [mark] = re.findall(r"accept_after='(.+)'", str(refused.value))
    assert is_mark(mark)
    assert judge("sink", held, asked, mark) is Outcome.ACCEPTED
    assert judge("sink", asked, asked, mark) is Outcome.DUPLICATE


def test_a_sink_without_a_claim_begins_with_the_batch_that_was_named_or_with_any() -> None:
    late = TableClaim("q", 7, "a")
    assert judge("sink", None, late, NOTHING) is Outcome.ACCEPTED
    with pytest.raises(BatchRefused, match="accept_after='nothing-7'"):
        judge("sink", None, late, mark_before(6))


@given(claims, claims, st.integers(0, 5))
def test_the_mark_of_a_sink_that_begins_lets_nothing_follow_once_the_sink_has_a_claim(
    held: TableClaim, asked: TableClaim, number: int
) -> None:
    """It stays in the program: a query that lost its checkpoint later would write all its rows a second time."""
    with suppress(BatchRefused):
        judge("sink", held, asked, accept_after=None)
        return
    for mark in (NOTHING, mark_before(number), mark_before(asked.batch_id)):
        with pytest.raises(BatchRefused):
            judge("sink", held, asked, mark)


@given(claims, claims)
def test_a_mark_names_one_claim(one: TableClaim, other: TableClaim) -> None:
    marks = [mark_of(claim.query_id, claim.batch_id, claim.digest) for claim in (one, other)]
    assert (marks[0] == marks[1]) == (one == other)


@pytest.mark.parametrize(
    ("claim", "is_of_checkpoint"),
    [
        (TableClaim("another", 2, "c"), True),
        (TableClaim("query", 1, "planned again"), True),
        (TableClaim("query", 0, "a"), True),
        (TableClaim("query", 3, "d"), False),
    ],
)
def test_a_refusal_that_the_checkpoint_explains_begins_with_what_to_do_about_it(
    claim: TableClaim, is_of_checkpoint: bool
) -> None:
    with pytest.raises(BatchRefused) as refused:
        judge("sink", TableClaim("query", 1, "b"), claim, None)
    assert str(refused.value).startswith(RESTORE) == is_of_checkpoint


def test_a_query_that_lost_its_state_is_not_let_in_by_a_mark() -> None:
    """Its totals would begin again at nothing, and ids that were seen would be new."""
    held, first = TableClaim("old", 41, "a"), TableClaim("new", 0, "b")
    mark = mark_of("old", 41, "a")
    assert judge("sink", held, first, mark) is Outcome.ACCEPTED
    for accept_after in (None, mark):
        with pytest.raises(BatchRefused, match=r"keeps state \(StateStoreSave\).* accept_after is not enough") as found:
            judge("sink", held, first, accept_after, ("StateStoreSave",), "delete the claim")
        assert str(found.value).endswith("before its first batch, delete the claim")
        assert mark not in str(found.value)


def test_a_query_that_has_its_state_goes_on_by_a_mark_as_any_other() -> None:
    """Its checkpoint was set back, or its sink was: the state is that of the checkpoint."""
    held = TableClaim("query", 41, "a")
    for next_one in (TableClaim("query", 40, "b"), TableClaim("query", 44, "b")):
        assert judge("sink", held, next_one, mark_of("query", 41, "a"), ("StateStoreSave",)) is Outcome.ACCEPTED
    assert judge("sink", None, TableClaim("query", 7, "b"), mark_before(7), ("StateStoreSave",)) is Outcome.ACCEPTED
    assert judge("sink", held, TableClaim("query", 42, "b"), None, ("StateStoreSave",)) is Outcome.ACCEPTED
