"""What a chart promises: every count that is not zero can be seen, nothing leaves the drawing, nothing is markup."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from semel.ui.charts.drawing import HEIGHT, SEEN_MIN, SENT_SHARE, WIDTH, Chart, Fate, Shape, fates, line, stacked

COUNTS = st.integers(0, 10**9)


def rectangles(shapes: tuple[Shape, ...], kind: str) -> list[tuple[float, ...]]:
    paths = "".join(one.path for one in shapes if one.kind == kind)
    return [tuple(map(float, found)) for found in re.findall(r"M([-\d.]+) ([-\d.]+)h([-\d.]+)v([-\d.]+)h", paths)]


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS).map(lambda one: Fate(one[0], min(one[1], one[0]), one[2]))))
def test_what_is_lost_or_doubled_is_seen_and_nothing_leaves_the_drawing(columns: list[Fate]) -> None:
    shapes = fates(columns, max((one.doubled for one in columns), default=0))
    lost, doubled = rectangles(shapes, "lost"), rectangles(shapes, "doubled")
    assert len(lost) == sum(one.lost > 0 for one in columns)
    assert len(doubled) == sum(one.doubled > 0 for one in columns)
    assert all(height >= min(SEEN_MIN, HEIGHT * SENT_SHARE) for *_, height in lost)
    for x, y, width, height in [*lost, *doubled, *rectangles(shapes, "stored")]:
        assert -0.1 <= x <= WIDTH + 0.1
        assert x + width <= WIDTH + 1
        assert y >= -0.1
        assert y + height <= HEIGHT + 0.2


def test_kinds_stand_upon_each_other_within_their_part_of_the_height() -> None:
    shapes = stacked([[1, 1], [0, 999_999]], ["gap", "fenced"], 1_000_000, height=30, bottom=30)
    (gap,) = rectangles(shapes, "gap")
    small, large = rectangles(shapes, "fenced")
    assert gap[1] + gap[3] == 30
    assert gap[3] >= SEEN_MIN
    assert small[1] + small[3] == gap[1]
    assert large[1] >= 0


def test_a_line_stops_where_nothing_was_measured() -> None:
    drawn = line("sink-1", [(0.0, 0.5), (0.1, 0.5), (0.9, 2.0)], gap=0.2)
    assert drawn == Shape("line sink-1", "M0.0 50.0L100.0 50.0M900.0 0.0")
    assert line("sink-1", [], gap=0.2) is None


def test_a_title_is_never_markup() -> None:
    assert "<script>" not in Chart("<script>", (Shape('"><script>', "M0 0"),)).svg()
