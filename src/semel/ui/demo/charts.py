"""The charts of the report, from the demo's figures. `semel.ui.charts` draws them.

This file must never decide what a figure means.
"""

from itertools import chain, count
from typing import Final

from semel.chaos.plan import Fault
from semel.ui.charts.drawing import Chart, Fate, Shape, band, fates, line, mark, steps
from semel.ui.demo.figures import Happening, Pipeline
from semel.ui.demo.stream import NEVER, Run, Stream
from semel.ui.demo.timetable import HANG_SECONDS

BIN_SECONDS: Final = 0.1

MARKS: Final = {Fault.DROP_ACK: "an ACK is lost", Fault.CUT: "a connection is cut", Fault.HANG: "nothing passes"}


def bins(run: Run, stream: Stream) -> list[Fate]:
    """For each tenth of a second of the timetable: how many payments were sent, how many are lost, and how many copies
    are too many.
    """
    per_bin = max(1, round(stream.per_second * BIN_SECONDS))
    counted = []
    for begin in range(0, len(run.copies), per_bin):
        copies = run.copies[begin : begin + per_bin]
        lost = copies.count(0)
        counted.append(Fate(len(copies), lost, sum(copies) - len(copies) + lost))
    return counted


def most_doubled(stream: Stream) -> int:
    """The most doubled records of any tenth of a second, which is the top of the scale."""
    return max(one.doubled for run in stream.runs for one in bins(run, stream))


def fate_chart(run: Run, stream: Stream) -> str:
    """The payments of each tenth of a second."""
    title = f"{run.semantics}: {run.sent:,} payments, {run.lost:,} lost, {run.doubled:,} records too many"
    return Chart(title, (*_hang(stream), *fates(bins(run, stream), most_doubled(stream)), *_marks(stream))).svg()


def latency_chart(stream: Stream, seconds_max: float) -> str:
    """For each tenth of a second, how long its slowest payment waited for the acknowledgement. A line has a gap where
    nothing was acknowledged.
    """
    lines = []
    for run in stream.runs:
        points = [(at / stream.seconds, slowest / seconds_max) for at, slowest in latencies(run, stream)]
        lines.append(line(run.semantics, points, gap=1.5 * BIN_SECONDS / stream.seconds))
    shapes = (*_hang(stream), *_marks(stream), *(one for one in lines if one is not None))
    return Chart("how long payments waited for their acknowledgement", shapes).svg()


def latencies(run: Run, stream: Stream) -> list[tuple[float, float]]:
    """For each tenth of a second, its middle and the longest wait of its acknowledged payments."""
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
    """How many rows the sinks had over time, and the faults of the pipeline."""
    lines = [
        steps(f"sink-{number}", [(at / pipeline.seconds, count / rows_max) for at, count in points])
        for number, points in enumerate(pipeline.growth.values())
    ]
    done = [mark(one.at_seconds / pipeline.seconds, one.kind) for one in deeds(pipeline)]
    return Chart("payments in each sink over time", (*done, *lines)).svg()


def deeds(pipeline: Pipeline) -> list[Happening]:
    """The events that the demo caused, without those of the pipeline itself."""
    return [one for one in pipeline.happenings if one.kind != "life"]


def ticks(seconds: float, wanted: int = 6) -> list[float]:
    """Round numbers of seconds from 0 on, about `wanted` of them."""
    round_ones = chain((0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600), (1200 * 2**doublings for doublings in count()))
    step = next(step for step in round_ones if seconds / step <= wanted)
    return [number * step for number in range(int(seconds / step) + 1)]


def _hang(stream: Stream) -> list[Shape]:
    begins = [strike.at_seconds / stream.seconds for strike in stream.strikes if strike.fault is Fault.HANG]
    return [band(begin, HANG_SECONDS / stream.seconds, "hang") for begin in begins]


def _marks(stream: Stream) -> list[Shape]:
    return [
        mark(strike.at_seconds / stream.seconds, strike.fault)
        for strike in stream.strikes
        if strike.fault is not Fault.HANG
    ]
