"""The rule of a sink's claim, against a naive model: one that keeps all batches that were ever written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.spark.tables.claims import NOTHING, BatchRefused, Claim, Outcome, judge, mark_of

claims = st.builds(Claim, st.sampled_from(["q", "r"]), st.integers(0, 4), st.sampled_from(["a", "b"]))


@dataclass
class Model:
    """Keeps everything. A batch may follow what is there exactly if it is the next one of the query whose batches are
    there, all of them."""

    written: list[Claim] = field(default_factory=list)

    def expected(self, asked: Claim) -> Outcome | None:
        if asked in self.written[-1:]:
            return Outcome.DUPLICATE
        last = self.written[-1] if self.written else Claim(asked.query, -1, "")
        next_one = (last.query, last.batch_id + 1)
        return Outcome.ACCEPTED if (asked.query, asked.batch_id) == next_one else None


@given(st.lists(claims, max_size=30))
def test_a_batch_is_accepted_a_duplicate_or_refused_as_one_who_kept_all_batches_would_say(history: list[Claim]) -> None:
    model = Model()
    held: Claim | None = None
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
    held: Claim | None, asked: Claim
) -> None:
    with suppress(BatchRefused):
        judge("sink", held, asked, accept_after=None)
        return
    with pytest.raises(BatchRefused, match=f"accept_after='{mark_of(held)}'"):
        judge("sink", held, asked, accept_after=None)
    assert judge("sink", held, asked, mark_of(held)) is Outcome.ACCEPTED
    assert judge("sink", asked, asked, mark_of(held)) is Outcome.DUPLICATE


@given(claims, claims)
def test_a_mark_names_one_claim(one: Claim, other: Claim) -> None:
    assert (one.mark == other.mark) == (one == other)
    assert one.mark != NOTHING
