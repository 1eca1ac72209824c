"""The rules, beside a model that keeps everything that was ever published and looks through it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.publish.rules import NOTHING, NUMBER_MAX, Gap, PublishRefused, Receipt, decide, plan

SMALL = st.integers(0, 6)
CALLS = st.lists(st.lists(SMALL, max_size=5), max_size=10)


class Naive:
    """Published numbers, as a list."""

    def __init__(self, gaps_allowed: bool) -> None:
        self.published: list[int] = []
        self._gaps_allowed = gaps_allowed

    def call(self, numbers: list[int]) -> list[str] | tuple[int, int]:
        """The outcomes, or what was expected and what came."""
        after = list(self.published)
        outcomes = []
        for number in numbers:
            if any(number <= earlier for earlier in after):
                outcomes.append("duplicate")
            elif self._gaps_allowed or number == len(after):
                after.append(number)
                outcomes.append("accepted")
            else:
                return len(after), number
        self.published = after
        return outcomes


@given(CALLS, st.booleans())
def test_every_number_is_what_a_model_that_remembers_all_of_them_says(
    calls: list[list[int]], gaps_allowed: bool
) -> None:
    model, cursor, published = Naive(gaps_allowed), NOTHING, []
    for numbers in calls:
        expected = model.call(numbers)
        if isinstance(expected, tuple):
            with pytest.raises(Gap) as gap:
                plan("orders", cursor, numbers, gaps_allowed=gaps_allowed)
            assert (gap.value.expected, gap.value.got) == expected
        else:
            planned = plan("orders", cursor, numbers, gaps_allowed=gaps_allowed)
            assert list(planned.receipts) == expected
            pairs = zip(numbers, planned.receipts, strict=True)
            published += [number for number, outcome in pairs if outcome is Receipt.ACCEPTED]
            cursor = planned.cursor
        assert published == model.published
        assert cursor == (published[-1] if published else NOTHING)


def test_the_largest_number_is_the_last_there_is() -> None:
    assert decide("orders", NUMBER_MAX - 1, NUMBER_MAX, gaps_allowed=False) is Receipt.ACCEPTED
    with pytest.raises(PublishRefused, match="is no number"):
        decide("orders", NUMBER_MAX, NUMBER_MAX + 1, gaps_allowed=False)


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", None])
def test_what_is_no_number_is_refused(number: int) -> None:
    with pytest.raises(PublishRefused, match="is no number"):
        decide("orders", NOTHING, number, gaps_allowed=True)
