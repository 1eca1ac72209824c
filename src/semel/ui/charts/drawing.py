"""Draws charts only from shapes: a page stretches them to any width, and has the texts beside them in HTML.

A shape has a class, and `charts.css` has its colour. All lengths are in units of the drawing, which is WIDTH by HEIGHT.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any, Final, NamedTuple

WIDTH: Final = 1000.0
HEIGHT: Final = 100.0
# The share of a chart's height for the sent rows; above them are the doubled ones on another scale, because a hundred
# doubles beside thousands of payments would be two pixels.
SENT_SHARE: Final = 0.7
# The least height of lost or doubled rows, for the same reason.
SEEN_MIN: Final = 4.0


class Shape(NamedTuple):
    """A path, and the classes that colour it."""

    kind: str
    path: str


class Chart(NamedTuple):
    """Shapes, the later ones on top, and the title for screen readers."""

    title: str
    shapes: tuple[Shape, ...]

    def svg(self) -> str:
        """The chart as a part of a page."""
        shapes = "".join(f'<path class="{escape(one.kind)}" d="{one.path}"/>' for one in self.shapes)
        return (
            f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(self.title)}">{shapes}</svg>'
        )

    def as_json(self) -> dict[str, Any]:
        """The chart for a page that makes the elements itself."""
        return {"title": self.title, "width": WIDTH, "height": HEIGHT, "shapes": [one._asdict() for one in self.shapes]}


class Fate(NamedTuple):
    """How many rows of one piece of time or of a log were sent, how many are lost, and how many copies are too many."""

    sent: int
    lost: int
    doubled: int


def colours() -> str:
    """The style sheet of all charts."""
    return resources.files("semel.ui.charts").joinpath("charts.css").read_text(encoding="utf-8")


def fates(columns: Sequence[Fate], doubled_max: int) -> tuple[Shape, ...]:
    """A column for each `Fate`: the stored rows below, the lost ones above them, and on top the doubled ones on a scale
    that ends at `doubled_max`.
    """
    if not columns:
        return ()
    step = WIDTH / len(columns)
    sent_height = HEIGHT * SENT_SHARE
    scale = sent_height / max(1, *(one.sent for one in columns))
    doubled_scale = (HEIGHT - sent_height) / max(doubled_max, 1)
    shapes: dict[str, list[str]] = {"stored": [], "lost": [], "doubled": []}
    for position, one in enumerate(columns):
        lost = min(max(scale * one.lost, SEEN_MIN), sent_height) if one.lost else 0.0
        x, top = position * step, HEIGHT - max(scale * one.sent, lost)
        doubled = doubled_scale * one.doubled
        shapes["stored"].append(rectangle(x, top + lost, step, max(HEIGHT - top - lost, 0)))
        if lost:
            shapes["lost"].append(rectangle(x, top, step, lost))
        if doubled:
            shapes["doubled"].append(rectangle(x, top - doubled, step, doubled))
    level = Shape("level", f"M0 {HEIGHT - sent_height:.1f}H{WIDTH:g}")
    return (*(Shape(kind, "".join(parts)) for kind, parts in shapes.items() if parts), level)


def stacked(
    columns: Sequence[Sequence[int]],
    kinds: Sequence[str],
    total_max: int,
    *,
    height: float = HEIGHT,
    bottom: float = HEIGHT,
) -> tuple[Shape, ...]:
    """Columns of counts, one kind above the other, from `bottom` up to `height` above it. A count that is not zero is
    always visible.
    """
    if not columns:
        return ()
    step = WIDTH / len(columns)
    scale = height / max(total_max, 1)
    parts: dict[str, list[str]] = {kind: [] for kind in kinds}
    for position, counts in enumerate(columns):
        top = bottom
        for kind, count in zip(kinds, counts, strict=True):
            if count:
                tall = min(max(scale * count, SEEN_MIN), top - (bottom - height))
                top -= tall
                parts[kind].append(rectangle(position * step, top, step, tall))
    return tuple(Shape(kind, "".join(some)) for kind, some in parts.items() if some)


def line(kind: str, points: Iterable[tuple[float, float]], gap: float) -> Shape | None:
    """A line through points, each a share of the width and of the height. It is interrupted before a point that is
    further away than `gap`.
    """
    drawn, before = "", -gap
    for x, y in points:
        drawn += f"{'L' if x - before < gap else 'M'}{WIDTH * x:.1f} {HEIGHT * (1 - min(y, 1)):.1f}"
        before = x
    return Shape(f"line {kind}", f"M{drawn[1:]}") if drawn else None


def steps(kind: str, points: Iterable[tuple[float, float]]) -> Shape:
    """A line that stays level until the next point, from zero at the left edge to the right edge."""
    drawn = [f"M0 {HEIGHT:g}"]
    drawn += [f"H{WIDTH * x:.1f}V{HEIGHT * (1 - min(y, 1)):.1f}" for x, y in points]
    return Shape(f"line {kind}", "".join(drawn) + f"H{WIDTH:g}")


def mark(share: float, kind: str) -> Shape:
    """A line from top to bottom, at a share of the width."""
    return Shape(f"mark {kind}", f"M{WIDTH * share:.1f} 0V{HEIGHT:g}")


def band(begin: float, width: float, kind: str) -> Shape:
    """A band for a stretch of time, over the whole height."""
    return Shape(kind, rectangle(WIDTH * begin, 0, WIDTH * width, HEIGHT))


def rectangle(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
