"""Histories of two programs under one name, which begin anew and fence each other, beside a model that is a list of
numbers and what each program has seen of it. What the log holds is that list, whoever wrote which part of it."""

from __future__ import annotations

import itertools
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_under_test import CLIENT
from committed_records import committed_values, make_topic
from semel.publish import Fenced, Gap, Publisher, Record

PROGRAMS = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("begin anew"), PROGRAMS),
    # Where to begin, seen from what is there, and how many numbers.
    st.tuples(st.just("publish"), PROGRAMS, st.integers(-2, 2), st.integers(1, 3)),
)
_names = itertools.count(1)


class World:
    """Two programs, of which the one that began last has the name, and the numbers that are published."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._owner = -1
        self._programs = [self._program(), self._program()]
        # How many numbers each program believes to be there; None before it begins, and once it was fenced.
        self._seen: list[int | None] = [None, None]
        self._fenced = [False, False]
        self.published = 0

    def begin_anew(self, which: int) -> None:
        self._programs[which].close()
        self._programs[which] = self._program()
        self._fenced[which] = False
        self._begin(which)

    def publish(self, which: int, ahead: int, count: int) -> None:
        if self._seen[which] is None and not self._fenced[which]:
            self._begin(which)
        first = max(self.published + ahead, 0)
        numbers = range(first, first + count)
        expected = self._expected(which, numbers)
        try:
            claims = [(number, [Record(self._name, value=b"%d" % number)]) for number in numbers]
            outcomes: object = self._programs[which].publish_many(claims)
        except (Fenced, Gap) as error:
            outcomes = type(error)
        assert outcomes == expected

    def close(self) -> None:
        for program in self._programs:
            program.close()

    def _expected(self, which: int, numbers: range) -> object:
        """What comes of it; and what is there afterwards."""
        seen = self._seen[which]
        if seen is None:
            return Fenced
        if numbers[0] > seen:
            return Gap
        if numbers[-1] < seen:
            return ["duplicate"] * len(numbers)
        if which != self._owner:
            self._fenced[which], self._seen[which] = True, None
            return Fenced
        self.published = self._seen[which] = numbers[-1] + 1
        return ["duplicate" if number < seen else "accepted" for number in numbers]

    def _begin(self, which: int) -> None:
        assert self._programs[which].last() == self.published - 1
        self._owner, self._seen[which] = which, self.published

    def _program(self) -> Publisher:
        return Publisher(self._bootstrap, self._name, client=CLIENT, timeout_seconds=30)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=10))
def test_whoever_begins_anew_and_whoever_is_fenced_the_log_holds_each_number_once(
    bootstrap: str, steps: list[tuple[str, int] | tuple[str, int, int, int]]
) -> None:
    name = f"history-{os.getpid()}-{next(_names)}"
    make_topic(bootstrap, name)
    world = World(bootstrap, name)
    try:
        for what, which, *how in steps:
            if what == "begin anew":
                world.begin_anew(which)
            else:
                world.publish(which, *how)
    finally:
        world.close()
    assert committed_values(bootstrap, name) == [b"%d" % number for number in range(world.published)]
