"""The charts of the report, as SVG: shapes alone, stretched to any width; words stand beside them in HTML.

Colours are names of classes; the page knows the colours. This file must never decide what a figure means.
"""

from html import escape
from typing import Final

from semel.chaos.plan import Fault
from semel.demo.figures import Happening, Pipeline
from semel.demo.stream import NEVER, Run, Stream
from semel.demo.timetable import HANG_SECONDS

BIN_SECONDS: Final = 0.1
# The drawing's own measures; the page stretches them.
WIDTH: Final = 1000.0
HEIGHT: Final = 100.0
# The share of a chart's height for what was sent; above it stands what is doubled, on a scale of its own: a hundred
# doubles beside thousands of payments would be two pixels.
SENT_SHARE: Final = 0.7
# What is lost is at least so high, for the same reason.
_SEEN_MIN: Final = 4.0

MARKS: Final = {Fault.DROP_ACK: "an ACK is lost", Fault.CUT: "a connection is cut", Fault.HANG: "nothing passes"}


def bins(run: Run, stream: Stream) -> list[dict[str, int]]:
    """By the time at which payments were due: how many were sent, how many are lost, and how many copies too many."""
    per_bin = max(1, round(stream.per_second * BIN_SECONDS))
    counted = []
    for begin in range(0, len(run.copies), per_bin):
        copies = run.copies[begin : begin + per_bin]
        lost = copies.count(0)
        counted.append({"sent": len(copies), "lost": lost, "doubled": sum(copies) - len(copies) + lost})
    return counted


def most_doubled(stream: Stream) -> int:
    """In a tenth of a second: the top of the scale of what is doubled."""
    return max(one["doubled"] for run in stream.runs for one in bins(run, stream))


def fate_chart(run: Run, stream: Stream) -> str:
    """The payments of each tenth of a second: a column as high as those sent, without the lost ones at its top, and
    with the doubled ones above it, on a scale of their own."""
    columns = bins(run, stream)
    step = WIDTH / len(columns)
    sent_height = HEIGHT * SENT_SHARE
    scale = sent_height / max(one["sent"] for one in columns)
    doubled_scale = (HEIGHT - sent_height) / max(most_doubled(stream), 1)
    shapes: dict[str, list[str]] = {"stored": [], "lost": [], "doubled": []}
    for position, one in enumerate(columns):
        x, top = position * step, HEIGHT - scale * one["sent"]
        lost = max(scale * one["lost"], _SEEN_MIN) if one["lost"] else 0.0
        doubled = doubled_scale * one["doubled"]
        shapes["stored"].append(_rectangle(x, top + lost, step, HEIGHT - top - lost))
        if lost:
            shapes["lost"].append(_rectangle(x, top, step, lost))
        if doubled:
            shapes["doubled"].append(_rectangle(x, top - doubled, step, doubled))
    paths = "".join(f'<path class="{name}" d="{"".join(parts)}"/>' for name, parts in shapes.items() if parts)
    line = f'<path class="level" d="M0 {HEIGHT - sent_height:.1f}H{WIDTH:g}"/>'
    title = f"{run.semantics}: {run.sent:,} payments, {run.lost:,} lost, {run.doubled:,} records too many"
    return _svg(title, _hang(stream) + paths + line + _marks(stream))


def latency_chart(stream: Stream, seconds_max: float) -> str:
    """How long the payments of each tenth of a second waited for their acknowledgement, the slowest of them. A line
    stops where there was none."""
    paths = []
    for run in stream.runs:
        drawn, before = "", -BIN_SECONDS
        for at, slowest in latencies(run, stream):
            x, y = WIDTH * at / stream.seconds, HEIGHT * (1 - min(slowest / seconds_max, 1))
            drawn += f"{'L' if at - before < 1.5 * BIN_SECONDS else 'M'}{x:.1f} {y:.1f}"
            before = at
        if drawn:
            paths.append(f'<path class="line {run.semantics}" d="M{drawn[1:]}"/>')
    return _svg("how long payments waited for their acknowledgement", _hang(stream) + _marks(stream) + "".join(paths))


def latencies(run: Run, stream: Stream) -> list[tuple[float, float]]:
    """For each tenth of a second its middle, and the longest wait of those that were acknowledged."""
    per_bin = max(1, round(stream.per_second * BIN_SECONDS))
    points = []
    for begin in range(0, run.sent, per_bin):
        waits = [
            max(0.0, at - position / stream.per_second)
            for position, at in enumerate(run.acknowledged_at[begin : begin + per_bin], begin)
            if at != NEVER
        ]
        if waits:
            points.append(((begin + per_bin / 2) / stream.per_second, max(waits)))
    return points


def growth_chart(pipeline: Pipeline, rows_max: int) -> str:
    """How the sinks filled, and what was done to them meanwhile."""
    paths = []
    for number, (_, points) in enumerate(pipeline.growth.items()):
        steps = [f"M0 {HEIGHT:g}"]
        for at, count in points:
            steps.append(f"H{WIDTH * at / pipeline.seconds:.1f}V{HEIGHT * (1 - min(count / rows_max, 1)):.1f}")
        paths.append(f'<path class="line sink-{number}" d="{"".join(steps)}H{WIDTH:g}"/>')
    done = "".join(_mark(one.at_seconds / pipeline.seconds, one.kind) for one in deeds(pipeline))
    return _svg("payments in each sink over time", done + "".join(paths))


def deeds(pipeline: Pipeline) -> list[Happening]:
    """What was done to the pipeline, as against what it did."""
    return [one for one in pipeline.happenings if one.kind != "life"]


def ticks(seconds: float, wanted: int = 6) -> list[float]:
    """Round numbers of seconds from 0 on, about as many as are wanted."""
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if seconds / step <= wanted)
    return [number * step for number in range(int(seconds / step) + 1)]


def _hang(stream: Stream) -> str:
    begins = [WIDTH * strike.at_seconds / stream.seconds for strike in stream.strikes if strike.fault is Fault.HANG]
    width = WIDTH * HANG_SECONDS / stream.seconds
    return "".join(f'<path class="hang" d="{_rectangle(begin, 0, width, HEIGHT)}"/>' for begin in begins)


def _marks(stream: Stream) -> str:
    return "".join(
        _mark(strike.at_seconds / stream.seconds, strike.fault)
        for strike in stream.strikes
        if strike.fault is not Fault.HANG
    )


def _mark(share: float, kind: str) -> str:
    return f'<path class="mark {escape(kind)}" d="M{WIDTH * share:.1f} 0V{HEIGHT:g}"/>'


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"


def _svg(title: str, shapes: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">{shapes}</svg>'
    )
