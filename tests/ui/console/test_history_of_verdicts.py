"""The chart of verdicts shows each second's, and forgets what is older than it shows."""

from __future__ import annotations

from semel.ui.console.history import SECONDS_SHOWN, History

OUTCOMES = ("accepted", "duplicate", "gap", "fenced")


def counts(*numbers: int) -> dict[str, int]:
    return dict(zip(OUTCOMES, numbers, strict=True))


def kinds(drawn: dict[str, object]) -> list[str]:
    chart = drawn["chart"]
    assert isinstance(chart, dict)
    return [one["kind"] for one in chart["shapes"]]


def test_what_fell_before_the_first_look_is_in_no_second() -> None:
    history = History(OUTCOMES)
    history.note(100.2, counts(5000, 7, 0, 0))
    assert kinds(history.drawn(100.5)) == ["level"]


def test_each_second_has_what_fell_in_it_until_it_is_too_long_ago() -> None:
    history = History(OUTCOMES)
    history.note(100.0, counts(0, 0, 0, 0))
    history.note(100.4, counts(10, 1, 0, 0))
    history.note(100.9, counts(30, 1, 0, 0))
    history.note(101.0, counts(31, 1, 2, 1))
    drawn = history.drawn(101.0)
    assert (drawn["accepted_max"], drawn["others_max"]) == (30, 3)
    assert kinds(drawn) == ["stored", "absorbed", "gap", "fenced", "level"]
    assert drawn["chart"]["title"].endswith("31 accepted, 1 duplicate, 2 gap, 1 fenced")
    assert kinds(history.drawn(101.0 + SECONDS_SHOWN)) == ["level"]
