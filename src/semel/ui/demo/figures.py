"""The demo's figures, as the table that it shows at the end, and whether the promises held.

Terminal and report both show these figures, so they cannot disagree. It must never hold a figure that nobody counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from semel.settings import Semantics
from semel.ui.cli.display import counted
from semel.ui.demo.stream import Run, Stream

COLUMNS: Final = ("sent", "stored", "lost", "doubled", "absorbed", "fenced", "verdict")
NOT_COUNTED: Final = "-"

_VERDICTS: Final = {
    Semantics.AT_MOST_ONCE: "loses, as its name says",
    Semantics.AT_LEAST_ONCE: "doubles, as its name says",
    Semantics.EXACTLY_ONCE: "0 lost, 0 doubled",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. A value that cannot be counted has no figure."""

    name: str
    sent: int
    stored: int
    lost: int
    doubled: int
    verdict: str
    held: bool
    # With its unit: batches if a broker or a sink recognised the repetition, rows if the deduplication did.
    absorbed: str = NOT_COUNTED
    fenced: str = NOT_COUNTED

    def cells(self) -> list[str]:
        counts = [f"{count:,}" for count in (self.sent, self.stored, self.lost, self.doubled)]
        return [*counts, self.absorbed, self.fenced, self.verdict if self.held else f"NOT SO: {self.verdict}"]


@dataclass(frozen=True, slots=True)
class Happening:
    """A fault of the pipeline, or something that it did, and when."""

    at_seconds: float
    kind: str
    text: str
    # The label of its line in the chart.
    label: str = ""


@dataclass(slots=True)
class Pipeline:
    """What happened to the payments after they were stored in the log."""

    rows: list[Row] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    # For each sink, by name: how many rows it had at which second.
    growth: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(slots=True)
class Figures:
    """All figures. If there is no pipeline, `why_no_pipeline` says why."""

    seed: int
    stream: Stream
    pipeline: Pipeline | None = None
    why_no_pipeline: str = ""
    # What was wrong with conflicting settings, and the error of the real client.
    refused: Sequence[str] = ()
    refusal: str = ""

    def sections(self) -> list[tuple[str, list[Row]]]:
        """The rows of the table under their headings."""
        streams = [_row_of(run, self.stream) for run in self.stream.runs]
        sections = [("the stream of payments", streams)]
        if self.pipeline is not None:
            sections.append(("the pipeline on Spark", self.pipeline.rows))
        return sections

    @property
    def held(self) -> bool:
        return all(row.held for _, rows in self.sections() for row in rows)


def _row_of(run: Run, stream: Stream) -> Row:
    numbered = run.semantics is Semantics.EXACTLY_ONCE
    return Row(
        name=run.semantics,
        sent=run.sent,
        stored=run.stored,
        lost=run.lost,
        doubled=run.doubled,
        verdict=_VERDICTS[run.semantics],
        held=run.kept_its_promise and (stream.absorbed > 0 or not numbered),
        absorbed=counted(stream.absorbed, "batch", "batches") if numbered else NOT_COUNTED,
    )
