"""The main job of `semel demo`, from the set-up of the stage to the table and the report.

This file has the order of the steps and the texts about them; other modules do the work. It must never leave a process
or a file behind, except the report.
"""

import argparse
import contextlib
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from semel import settings
from semel.chaos.plan import Fault
from semel.settings import Semantics
from semel.ui.demo import (
    DEFAULT_PER_SECOND,
    DEFAULT_REPORT,
    DEFAULT_SECONDS,
    DEFAULT_SECONDS_ALONE,
    DemoFailed,
    charts,
    report,
)
from semel.ui.demo.database import database
from semel.ui.demo.figures import Figures
from semel.ui.demo.payments import PARTITIONS, payments
from semel.ui.demo.screen import Screen, bar, table
from semel.ui.demo.stage import CountedBroker, Page
from semel.ui.demo.stream import OWN_SETTINGS, Sample, client_settings, flow
from semel.ui.demo.timetable import HANG_SECONDS, SECONDS_MIN, Strike, timetable

# Settings that somebody in a hurry might add to those of exactly-once.
_HURRIED: Final = {"acks": 1, "max.in.flight.requests.per.connection": 50}


def run(options: argparse.Namespace) -> int:
    """Run the demo; returns the exit code, 0 if every promise held."""
    if options.seconds is not None and options.seconds < SECONDS_MIN:
        raise DemoFailed(f"--seconds {options.seconds:g}: the faults need {SECONDS_MIN:g} at least")
    if options.per_second < 1:
        raise DemoFailed(f"--per-second {options.per_second}: it has to be 1 or more")
    if options.report is not None:
        _check_place(Path(options.report))
    if options.database is not None and options.no_spark:
        raise DemoFailed("--database is for the pipeline, which --no-spark leaves out")
    why_not = "--no-spark" if options.no_spark else why_no_spark()
    seconds = options.seconds or (DEFAULT_SECONDS_ALONE if why_not else DEFAULT_SECONDS)
    began = time.monotonic()
    page = Page(sys.stdout.isatty())
    page.title("semel demo: payments through a bad network, from the log to the last row")
    if why_not:
        page.say(f"The pipeline on Spark is left out: {why_not}.")
    page.say(f"The answer comes in about {_estimate(seconds, alone=bool(why_not))}.")
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as directory, contextlib.ExitStack() as closing:
        broker = CountedBroker(os.path.join(directory, "data"), PARTITIONS)
        closing.callback(broker.kill)
        broker.start()
        page.say(f"`semel serve` runs as process {broker.process_id}, ready in {broker.ready_seconds:.2f} s.")
        # A database that cannot be used is reported before anything is sent.
        if not why_not:
            page.say("Waiting for the database that takes the rows ...", faint=True)
        rows = None if why_not else closing.enter_context(database(options.database, Path(directory)))
        if rows is not None and rows.why_not_postgres:
            page.say(f"Rows go to SQLite, for PostgreSQL cannot run here: {rows.why_not_postgres}.")
        figures = _stream(page, broker, options, seconds)
        if rows is None:
            figures.why_no_pipeline = why_not
        else:
            from semel.ui.demo.pipeline import carry

            figures.pipeline = carry(page, broker, figures.stream, Path(directory), rows)
    _sum_up(page, figures, time.monotonic() - began)
    command = _command(options, alone=figures.pipeline is None)
    place = _write(report.write(figures, command), options.report)
    page.say(f"{place}: the same with charts, and the settings. Again: {command}")
    return 0 if figures.held else 1


def _check_place(place: Path) -> None:
    """Check before the demo, which takes minutes, that the report can be written at its end."""
    directory = place.absolute().parent
    if not directory.is_dir():
        raise DemoFailed(f"--report {place}: there is no directory {directory}")
    existed = place.exists()
    try:
        place.open("ab").close()
    except OSError as error:
        raise DemoFailed(f"--report {place}: {error.strerror}") from error
    if not existed:
        place.unlink()


def _write(text: str, option: str | None) -> Path:
    """Write the report to the place that was named, otherwise here, otherwise to a temporary directory; returns where
    it is.
    """
    place = Path(option or DEFAULT_REPORT)
    try:
        try:
            place.write_text(text, encoding="utf-8")
        except OSError:
            if option is not None:
                raise
            place = Path(tempfile.mkdtemp(prefix="semel-demo-report-"), DEFAULT_REPORT)
            place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DemoFailed(f"--report {place}: {error.strerror}") from error
    return place


def why_no_spark() -> str:
    """What is missing for the pipeline, and how to get it; empty if nothing is missing."""
    missing = [name for name in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{missing[0]} is not installed: pip install 'semel[spark]'"
    from semel.spark.java import JavaMissing, find_java

    try:
        find_java()
    except JavaMissing as error:
        return str(error)
    return ""


def _estimate(seconds: float, *, alone: bool) -> str:
    return f"{seconds + 4:.0f} s" if alone else f"{(seconds + 80) / 60:.1f} min, most of it Spark's"


def _stream(page: Page, broker: CountedBroker, options: argparse.Namespace, seconds: float) -> Figures:
    page.part("How the clients are set")
    _show_settings(page)
    refused, refusal = _refuse(page)
    page.part("The same payments, sent three ways through the same faults")
    strikes = timetable(options.seed, seconds)
    sent = payments(options.seed, round(seconds * options.per_second))
    counts = {fault: sum(strike.fault is fault for strike in strikes) for fault in charts.MARKS}
    page.say(
        f"{len(sent):,} payments, {options.per_second:,} a second, to each of three topics. On the way "
        f"{counts[Fault.DROP_ACK]} ACKs are lost, {counts[Fault.CUT]} connections are cut, and for {HANG_SECONDS:g} s "
        "nothing passes."
    )
    watching = _Watching(Screen(page.is_terminal), len(sent))
    stream = flow(broker, sent, options.per_second, strikes, watching.show)
    watching.screen.leave()
    for run in stream.runs:
        page.say(f"{run.semantics:14} {run.stored:,} stored, {run.lost:,} lost, {run.doubled:,} doubled")
    return Figures(options.seed, stream, refused=refused, refusal=refusal)


class _Watching:
    """Shows the stream while it flows."""

    def __init__(self, screen: Screen, count: int) -> None:
        self.screen = screen
        self._count = count
        self._news = ""

    def show(self, sample: Sample, strike: Strike | None) -> None:
        if strike is not None:
            self._news = f"{sample.at_seconds:5.1f} s  {charts.MARKS[strike.fault]}"
            if not self.screen.is_terminal:
                acknowledged = ", ".join(f"{acknowledged:,}" for acknowledged in sample.acknowledged)
                self.screen.say(f"   {self._news:32} {sample.sent:,} sent, acknowledged {acknowledged}")
        lines = [
            f"   {semantics:14} {bar(acknowledged / self._count)} {acknowledged:>7,} / {sample.sent:,} acknowledged"
            for semantics, acknowledged in zip(Semantics, sample.acknowledged, strict=True)
        ]
        self.screen.draw([*lines, f"   {self._news}"])


def _show_settings(page: Page) -> None:
    """Show the settings of the three semantics side by side."""
    bundles = {semantics: settings.bundle(semantics, "confluent").producer for semantics in Semantics}
    page.say(f"{'':40}" + "".join(f"{semantics:>15}" for semantics in bundles))
    for name in dict.fromkeys(name for bundle in bundles.values() for name in bundle):
        values = (str(bundle.get(name, "-")).lower() for bundle in bundles.values())
        page.say(f"{name:40}" + "".join(f"{value:>15}" for value in values), faint=True)
    own = ", ".join(f"{name}={value}" for name, value in OWN_SETTINGS.items() if name != "log_level")
    page.say(f"and for all three, so that nobody waits long here: {own}", faint=True)


def _refuse(page: Page) -> tuple[list[str], str]:
    """Show conflicting settings: what is wrong with them, and the error of the real client."""
    from confluent_kafka import KafkaException, Producer

    config = {**client_settings(Semantics.EXACTLY_ONCE), **_HURRIED}
    hurried = ", ".join(f"{name}={value}" for name, value in _HURRIED.items())
    page.say(f"Somebody in a hurry adds {hurried} to the last. `semel settings check` says:")
    conflicts = [str(conflict) for conflict in settings.check(config, client="confluent", role="producer")]
    for conflict in conflicts:
        page.say(f"  {conflict}", faint=True)
    try:
        Producer({**config, "bootstrap.servers": "127.0.0.1:1"})
    except KafkaException as refusal:
        error_text = str(refusal.args[0].str())
        page.say(f"and the client, when it is made: {error_text}", faint=True)
        return conflicts, error_text
    raise DemoFailed("the client takes settings that were refused before")


def _sum_up(page: Page, figures: Figures, seconds: float) -> None:
    page.part("The result")
    for line in table(figures.sections()):
        page.say(line)
    exactly_once = figures.stream.runs[-1]
    verdict = f"exactly-once: {exactly_once.lost} lost, {exactly_once.doubled} doubled"
    if figures.pipeline is not None:
        lost = sum(row.lost for row in figures.pipeline.rows)
        doubled = sum(row.doubled for row in figures.pipeline.rows)
        verdict += f"; the pipeline: {lost} lost, {doubled} doubled"
    page.end(f"{verdict}   ({seconds:.0f} s)" if figures.held else f"A PROMISE WAS BROKEN   {verdict}", figures.held)


def _command(options: argparse.Namespace, *, alone: bool) -> str:
    words = ["semel demo", f"--seed {options.seed}"]
    if options.seconds is not None:
        words.append(f"--seconds {options.seconds:g}")
    if options.per_second != DEFAULT_PER_SECOND:
        words.append(f"--per-second {options.per_second}")
    if alone:
        words.append("--no-spark")
    return " ".join(words)
