"""Whoever has something to do is due at its time, however often that moved, and stays due until it was looked at."""

from hypothesis import given
from hypothesis import strategies as st

from semel.broker.deadlines import DUE_AGAIN_MS, Deadlines

times = st.integers(1, 50)


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abcd"), times), times), max_size=40))
def test_nobody_is_due_before_the_earliest_time_that_was_noted_or_missed_after_it(
    events: list[tuple[str, int] | int],
) -> None:
    deadlines = Deadlines[str]()
    earliest: dict[str, int] = {}
    for event in events:
        if isinstance(event, tuple):
            name, at_ms = event
            assert deadlines.note(name, at_ms) == (at_ms < earliest.get(name, 1000))
            earliest[name] = min(at_ms, earliest.get(name, 1000))
        else:
            due = deadlines.due(event)
            assert sorted(due) == sorted(name for name, at_ms in earliest.items() if at_ms <= event)
            assert [earliest[name] for name in due] == sorted(earliest[name] for name in due)
            assert deadlines.due(event) == due, "until it was looked at"
            for name in due:
                deadlines.forget(name)
                del earliest[name]
        assert deadlines.next_ms() == min(earliest.values(), default=None)


def test_never_is_no_time() -> None:
    deadlines = Deadlines[str]()
    assert not deadlines.note("a", None)
    assert deadlines.next_ms() is None


def test_who_breaks_off_is_due_again_and_holds_up_nobody_else() -> None:
    deadlines = Deadlines[str]()
    for name in "abc":
        deadlines.note(name, 10)
    slips: list[Exception] = []
    passed: list[str] = []

    def work(name: str) -> None:
        if name == "a":
            raise ValueError("a slip")
        passed.append(name)

    deadlines.each_due(10, work, slips.append)
    assert (passed, len(slips)) == (["b", "c"], 1)
    assert deadlines.due(10) == []
    assert deadlines.due(10 + DUE_AGAIN_MS) == ["a"]
