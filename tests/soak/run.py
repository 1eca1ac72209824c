"""`make soak`: two streaming queries behind a stream of payments, faults throughout, and an audit of what came of it.

    make soak                      10 minutes
    make soak MINUTES=60 SEED=7    an hour of other faults

It prints how far it is, a line every 30 seconds where there is no terminal, and one table at the end. The exit code is
1 if anything was lost, doubled or foreign, if a kind of fault never struck, if the driver gave up by itself, or if
memory grew. SEMEL_FIGURES names a file that gets the figures as JSON, for docs/RELIABILITY.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from semel.audit.verdict import KINDS
from semel.ui.demo import DemoFailed
from semel.ui.demo.main_job import why_no_spark
from semel.ui.demo.screen import Screen, bar
from soak.memory import JUDGED_SECONDS_MIN, MB, WARM_UP_SECONDS
from soak.plan import Kind, kinds
from soak.soaking import Figures, Seen, Soak

MINUTES: Final = 10.0
PER_SECOND: Final = 500
LINE_SECONDS: Final = 30.0
# From so long on, a soak that could not judge the memory of anything has not done what it is for.
JUDGING_SECONDS: Final = 480.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long payments are sent ({MINUTES:g})")
    parser.add_argument("--seed", type=int, default=1, help="which payments, and when what strikes (1)")
    parser.add_argument("--per-second", type=int, default=PER_SECOND, help=f"how many payments ({PER_SECOND})")
    wanted = parser.parse_args(arguments)
    if why_not := why_no_spark():
        print(f"soak: {why_not}", file=sys.stderr)
        return 1
    # What a thread of Java frees stays in the arena that it happened to have: with few of them, they are soon as full
    # as they get.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Whoever ends it by a signal gets it ended as by Ctrl-C, with all that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    watching = Watching(Screen(sys.stdout.isatty()), wanted.minutes * 60)
    with tempfile.TemporaryDirectory(prefix="semel-soak-", ignore_cleanup_errors=True) as directory:
        soak = Soak(wanted.seed, wanted.minutes * 60, wanted.per_second, Path(directory), watching.show)
        try:
            figures = soak.run()
        except DemoFailed as failure:
            print(f"soak: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("soak: interrupted", file=sys.stderr)
            return 130
    for line in table(figures):
        print(line)
    broken = complaints(figures)
    for complaint in broken:
        print(f"NOT SO: {complaint}")
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps(as_json(figures)))
    return 1 if broken else 0


class Watching:
    """What is shown of a soak while it is under way."""

    def __init__(self, screen: Screen, seconds: float) -> None:
        self._screen = screen
        self._seconds = seconds
        self._said_at = -LINE_SECONDS
        self._news = ""

    def show(self, seen: Seen, news: str) -> None:
        if news:
            self._news = f"{seen.at_seconds:6.0f} s  {news}"
        if self._screen.is_terminal:
            self._screen.draw([*_lines(seen, self._seconds), f"   {self._news}"])
        elif news or seen.at_seconds - self._said_at >= LINE_SECONDS:
            self._said_at = seen.at_seconds
            self._screen.say(f"{seen.at_seconds:6.0f} s  {news or _line(seen)}")


def _lines(seen: Seen, seconds: float) -> Iterator[str]:
    yield f"   {seen.doing:14} {bar(seen.at_seconds / seconds)} {seen.at_seconds:6.0f} s of {seconds:.0f}"
    yield f"   {'acknowledged':14} {bar(seen.acknowledged / max(seen.sent, 1))} {seen.acknowledged:,} of {seen.sent:,}"
    for query, rows in seen.rows.items():
        yield f"   {query:14} {bar(rows / max(seen.sent, 1))} {rows:,} rows"
    yield f"   {', '.join(f'{count} {kind}' for kind, count in seen.struck.items())}"
    yield f"   MB: {', '.join(f'{kind} {held:.0f}' for kind, held in seen.held_mb.items())}"


def _line(seen: Seen) -> str:
    rows = ", ".join(f"{query} {count:,}" for query, count in seen.rows.items())
    held = ", ".join(f"{kind} {mb:.0f}" for kind, mb in seen.held_mb.items())
    return f"{seen.doing}: sent {seen.sent:,}, {rows}; {seen.struck.total()} faults; MB: {held}"


def table(figures: Figures) -> Iterator[str]:
    """The one table."""
    yield f"soak of {figures.seconds / 60:g} min, seed {figures.seed}: {figures.sent:,} payments"
    yield f" {'faults':34}{'planned':>10}{'struck':>10}"
    for kind in Kind:
        left_out = "" if kind in kinds(figures.seconds) else "   too short for it"
        yield f"   {kind:32}{figures.planned[kind]:10,}{figures.struck[kind]:10,}{left_out}"
    yield f"   {'repetitions absorbed':32}{'':10}{figures.absorbed:10,}"
    yield f"   {'turned away as late':32}{'':10}{figures.fenced:10,}"
    yield f" {'sinks':34}{'sent':>10}{'stored':>10}" + "".join(f"{kind:>9}" for kind in KINDS)
    for name, verdict in figures.verdicts:
        [found] = verdict.sinks
        wrong = "".join(f"{getattr(found, kind).rows:9,}" for kind in KINDS)
        yield f"   {name:32}{verdict.source.rows:10,}{found.sink.rows:10,}{wrong}"
    warm = f"memory, of its own, after {WARM_UP_SECONDS:g} s"
    yield f" {warm:34}{'lives':>10}{'judged':>10}{'seconds':>9}{'from MB':>9}{'to MB':>9}{'MB/min':>9}{'allowed':>9}"
    for measure in figures.watched.verdicts():
        judged = f"   not judged: no life of {WARM_UP_SECONDS + JUDGED_SECONDS_MIN:g} s"
        if measure.longest is not None:
            of = measure.longest
            judged = f"{of.seconds:9.0f}{of.first_mb:9.1f}{of.last_mb:9.1f}"
            judged += f"{measure.steepest_mb_per_minute:9.2f}{measure.allowed_mb_per_minute:9.1f}"
        yield f"   {measure.kind:32}{measure.lives:10,}{measure.judged:10,}{judged}"
    yield f" {'disk':34}{'half, MB':>10}{'end, MB':>10}"
    for name, points in figures.watched.disk.items():
        yield f"   {name:32}{points[len(points) // 2][1] / MB:10.2f}{points[-1][1] / MB:10.2f}"


def complaints(figures: Figures) -> list[str]:
    """What is not as it should be; empty if the soak has passed."""
    found = []
    if figures.acknowledged != figures.sent:
        found.append(f"of {figures.sent:,} payments {figures.acknowledged:,} were acknowledged")
    for name, verdict in figures.verdicts:
        if not verdict.is_clean:
            [sink] = verdict.sinks
            wrong = ", ".join(f"{getattr(sink, kind).rows:,} {kind}" for kind in KINDS if getattr(sink, kind).rows)
            found.append(f"{name}: {wrong or 'not clean'}")
    found += [f"{kind}: none of them struck" for kind in kinds(figures.seconds) if not figures.struck[kind]]
    found += [
        f"{of.kind}: grows by {of.steepest_mb_per_minute:.2f} MB a minute"
        for of in figures.watched.verdicts()
        if not of.is_flat
    ]
    if figures.seconds >= JUDGING_SECONDS:
        unjudged = [of.kind for of in figures.watched.verdicts() if not of.judged]
        found += [f"{kind}: its memory could not be judged, the machine is too busy" for kind in unjudged]
    found += [f"the driver gave up by itself: {complaint}" for complaint in figures.given_up]
    return found


def as_json(figures: Figures) -> dict[str, Any]:
    """For docs/RELIABILITY.md: names as people read them, and numbers."""
    lost = {kind: sum(getattr(verdict.sinks[0], kind).rows for _, verdict in figures.verdicts) for kind in KINDS}
    return {
        "minutes": figures.seconds / 60,
        "payments": figures.sent,
        "struck": {str(kind): figures.struck[kind] for kind in kinds(figures.seconds)},
        "absorbed": figures.absorbed,
        "fenced": figures.fenced,
        "batches": dict(figures.batches),
        "wrong": lost,
        "mb_per_minute": {
            of.kind: round(of.steepest_mb_per_minute, 2) for of in figures.watched.verdicts() if of.judged
        },
        "longest_lives_mb": {
            kind: [(round(at_seconds, 1), round(held / MB, 2)) for at_seconds, held in points]
            for kind, points in figures.watched.longest_lives().items()
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
