"""The figures of a run and the table made of them: medians over the rounds, ratios to Kafka, targets. It prints to a
terminal and as Markdown from the same rows, so that a figure in the documents is one that a command printed. The page
has a section for each area, whose figures are those of one run, and a run leaves those of others."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import databases
from bench.measures import Area
from bench.measures.measure import Figures, Measure, Row

HEAD = ("measure", "semel", "kafka", "tansu", "ratio", "target", "holds")
KAFKA, TANSU = HEAD.index("kafka"), HEAD.index("tansu")
# What Kafka's column is called where no measure has Kafka in it.
PEER = "peer"
NOTHING = "-"
YES, NO = "yes", "no"
REASON_UNKNOWN = "the reason is not known yet."
MISSED = "### Targets that do not hold, and why"
EXPLAINED = "### What is measured, and why"
SECTION = "## "
# What the page begins with, before its sections.
INTRODUCTION = """
semel beside Apache Kafka, Spark's own connectors, and the same work without semel. `make bench` writes this page; do
not edit it. Every figure is the median of the rounds, with the lowest and the highest beside it. The ratio is semel
over Kafka, or over the peer that a row names for itself. Below the table of each area are the commit, the machine and
the command that its figures come from. `make bench ARGS='--area broker --write'` measures one area again (there are
{areas}), and `make bench ARGS=--write` measures all.
"""
DOCUMENT_WIDTH = 120
ROOT = Path(__file__).parent.parent
# What the name of a commit ends with where the work tree had changes beside it.
DIRTY = "-dirty"
# Something else that runs beside the brokers takes a core from them for a part of the time.
QUIET_LOAD_MAX = 0.5


@dataclass
class Results:
    """Every figure of every run, by measure, contender and metric, and what could not run and why."""

    figures: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    # What is said below the table, and about which measure; None if it is about all of them.
    notes: list[tuple[str | None, str]] = field(default_factory=list)

    def add(self, measure: Measure, contender: str, figures: Figures) -> None:
        for metric, value in figures.items():
            self.figures[measure.name, contender, metric].append(value)

    def note(self, text: str, measure: Measure | None = None) -> None:
        """One line below the table, said once."""
        note = (measure and measure.name, " ".join(text.split()))
        if note not in self.notes:
            self.notes.append(note)

    def notes_on(self, measures: Sequence[Measure]) -> list[str]:
        about = {None, *(measure.name for measure in measures)}
        return list(dict.fromkeys(text for measure, text in self.notes if measure in about))

    def of(self, measure: Measure, contender: str | None, metric: str) -> list[float]:
        return self.figures.get((measure.name, contender or "", metric), [])


def table(measures: Sequence[Measure], results: Results, *, ranges: bool = False) -> list[tuple[str, ...]]:
    """The lines of the table, with the head in front. `ranges` adds the lowest and the highest round."""
    brokers = {label.split()[0] for measure in measures for label in measure.contenders}
    head = HEAD if "kafka" in brokers else (*HEAD[:KAFKA], PEER, *HEAD[KAFKA + 1 :])
    lines = [head, *(line(measure, row, results, ranges=ranges) for measure in measures for row in measure.rows)]
    return lines if "tansu" in brokers else [(*cells[:TANSU], *cells[TANSU + 1 :]) for cells in lines]


def line(measure: Measure, row: Row, results: Results, *, ranges: bool) -> tuple[str, ...]:
    columns = [
        results.of(measure, row.semel, row.metric),
        results.of(measure, row.kafka, row.kafka_metric or row.metric),
        results.of(measure, row.tansu, row.metric),
    ]
    shown = [_figure(values, row.decimals, ranges=ranges) for values in columns]
    semel, kafka = (median(values) if values else None for values in columns[:2])
    ratio = f"{semel / kafka:.2f} x" if semel is not None and kafka else NOTHING
    target = str(row.target) if row.target else NOTHING
    holds = row.target.holds(semel, kafka) if row.target and semel is not None else None
    verdict = {True: YES, False: NO, None: NOTHING}[holds]
    return (row.title, *shown, ratio, target, verdict)


def missed(measures: Sequence[Measure], results: Results) -> list[str]:
    """Each target that does not hold, and why."""
    return _reasons(
        (measure, row)
        for measure in measures
        for row in measure.rows
        if line(measure, row, results, ranges=False)[-1] == NO
    )


def _reasons(rows: Iterable[tuple[Measure, Row]]) -> list[str]:
    """Rows of a measure that miss their targets for the same reason share a line."""
    titles: dict[tuple[str, str], list[str]] = defaultdict(list)
    for measure, row in rows:
        titles[measure.name, row.reason or REASON_UNKNOWN].append(row.title)
    return [
        f"{name}, {of_reason[0] if len(of_reason) == 1 else f'{len(of_reason)} rows'}: {reason}"
        for (name, reason), of_reason in titles.items()
    ]


def _figure(values: Sequence[float], decimals: int, *, ranges: bool) -> str:
    if not values:
        return NOTHING
    text = f"{median(values):,.{decimals}f}"
    if ranges and len(values) > 1:
        text += f" ({min(values):,.{decimals}f} to {max(values):,.{decimals}f})"
    return text


def as_text(measures: Sequence[Measure], results: Results, facts: Mapping[str, str]) -> str:
    lines = table(measures, results)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = []
    for cells in lines:
        numbers = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        printed.append("  ".join([cells[0].ljust(widths[0]), *numbers]).rstrip())
    printed.insert(1, "-" * max(len(text) for text in printed))
    printed.append("")
    printed += [f"{name}: {value}" for name, value in facts.items()]
    printed += [f"- {note}" for note in results.notes_on(measures)]
    printed += [f"- missed: {reason}" for reason in missed(measures, results)]
    return "\n".join(printed)


def as_section(area: Area, command: str, results: Results, facts: Mapping[str, str]) -> str:
    """What the page says of one area."""
    lines = table(area.measures, results, ranges=True)
    rows = ["| " + " | ".join(cells) + " |" for cells in lines]
    rows.insert(1, "|---|" + "---:|" * (len(lines[0]) - 1))
    parts = [
        f"{SECTION}{area.title}",
        "\n".join(rows),
        "\n".join(f"- {note}" for note in results.notes_on(area.measures)),
        "\n".join(f"- {name}: {value}" for name, value in {**facts, "command": f"`{command}`"}.items()),
    ]
    return _paragraphs([*filter(None, parts), *_explained(area.measures, missed(area.measures, results))])


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their titles."""
    found = re.split(rf"^(?={SECTION})", page, flags=re.MULTILINE)[1:]
    return {text.splitlines()[0].removeprefix(SECTION): text.rstrip("\n") + "\n" for text in found}


def as_page(names: Iterable[str], found: Iterable[str]) -> str:
    """The page with these sections; the names are those of all areas."""
    introduction = " ".join(INTRODUCTION.split()).format(areas=", ".join(f"`{name}`" for name in names))
    return "\n".join([_paragraphs(["# Benchmarks", introduction]), *found])


def reworded(section: str, measures: Sequence[Measure]) -> str:
    """A section with its figures as they were measured, and with the reasons and explanations that the measures have
    now. ValueError if the measures have other rows by now."""
    figures = section[: min(section.index(heading) for heading in (MISSED, EXPLAINED) if heading in section)]
    cells = [line.strip("| ").split(" | ") for line in figures.splitlines() if line.startswith("| ")][1:]
    rows = [(measure, row) for measure in measures for row in measure.rows]
    if [row.title for _, row in rows] != [title for title, *_ in cells]:
        raise ValueError("the rows of the page are not those of its measures: measure them again")
    reasons = _reasons(at for at, (*_, holds) in zip(rows, cells, strict=True) if holds == NO)
    return figures + _paragraphs(_explained(measures, reasons))


def _explained(measures: Sequence[Measure], reasons: Sequence[str]) -> list[str]:
    """What stands in a section below its figures."""
    parts = [MISSED, "\n".join(f"- {reason}" for reason in reasons)] if reasons else []
    parts.append(EXPLAINED)
    return parts + [f"**{measure.name}.** {' '.join((measure.__doc__ or '').split())}" for measure in measures]


def _paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _wrapped(part: str) -> str:
    if part.startswith(("|", "#", "- ")):
        return part
    return textwrap.fill(part, DOCUMENT_WIDTH, break_long_words=False, break_on_hyphens=False)


def why_not_quiet(load: float) -> str | None:
    """What keeps a page from having this machine's figures, if the load of the last minute does."""
    return (
        f"the load of the last minute is {load:.2f}: wait until it is {QUIET_LOAD_MAX}"
        if load > QUIET_LOAD_MAX
        else None
    )


def facts_of_this_run(rounds: int, versions: Iterable[str], load_before: Sequence[float]) -> dict[str, str]:
    """Where the figures come from: without these they cannot be compared with others."""
    from confluent_kafka import libversion, version

    client = f"confluent-kafka {version()}, librdkafka {libversion()[0]}"
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores of {_processor()}, {_memory_gibibytes()} GiB, Linux {platform.release()}",
        "load before the run": f"{', '.join(f'{load:.2f}' for load in load_before)} (1, 5 and 15 minutes)",
        "brokers": ", ".join(versions) or "none",
        "client": f"{client}, Python {platform.python_version()}",
        "databases": databases.versions(),
        "rounds": str(rounds),
    }


def why_not_a_commit(name: str) -> str | None:
    """What keeps others from measuring the same program again, if something does."""
    if name.endswith(DIRTY):
        return "the work tree has changes: commit them first"
    known = subprocess.run(["git", "merge-base", "--is-ancestor", name, "HEAD"], cwd=ROOT, capture_output=True)
    return f"{name} is not in the history" if known.returncode else None


def commit() -> str:
    """The commit that is measured, and whether the work tree has changes beside it."""
    command = ["git", "describe", "--always", f"--dirty={DIRTY}", "--abbrev=10"]
    described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "not in a git checkout"


def _processor() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gibibytes() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
