"""The verdict of an audit: exact counts, and the first of the ids that were counted."""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

# More digits than any sum of amounts has; Python's default is to round to 28.
EXACT: Final = Context(prec=100)
# How many ids of each kind are named, unless the caller sets another number. The counts are exact in any case.
LISTED_DEFAULT: Final = 100

# What may be wrong with a row, in the order in which a report names it.
LOST: Final = "lost"
DOUBLED: Final = "doubled"
FOREIGN: Final = "foreign"
ALTERED: Final = "altered"
KINDS: Final = (LOST, DOUBLED, FOREIGN, ALTERED)
# Lost rows whose id is stored all the same, only less often than it was sent: as after a deduplication.
REPEATS: Final = "repeats"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """An id, and how many of its rows are affected."""

    id: bytes
    rows: int

    @property
    def text(self) -> str:
        """The id as a person reads it: its text, or its bytes as `0x...` if they are no text."""
        try:
            text = self.id.decode()
        except UnicodeDecodeError:
            return f"0x{self.id.hex()}"
        return text if text.isprintable() and text else f"0x{self.id.hex()}"


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one kind: how many rows, how many ids, and the first ids in the order of their bytes."""

    rows: int = 0
    ids: int = 0
    listed: tuple[Finding, ...] = ()
    repeats: int = 0
    """How many of the rows that are lost are repetitions: their id is stored in the same window, less often than sent.
    """

    def plus(self, other: "Findings", listed_max: int) -> "Findings":
        listed = tuple(heapq.nsmallest(listed_max, [*self.listed, *other.listed]))
        return Findings(self.rows + other.rows, self.ids + other.ids, listed, self.repeats + other.repeats)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Rows in which a time or an amount cannot be read: how many, and the first of their ids."""

    rows: int = 0
    listed: tuple[Finding, ...] = ()

    def plus(self, other: "Unreadable", listed_max: int) -> "Unreadable":
        """These and those of another piece, which may have the same ids."""
        rows = Counter({one.id: one.rows for one in self.listed})
        rows.update({one.id: one.rows for one in other.listed})
        listed = heapq.nsmallest(listed_max, (Finding(id, count) for id, count in rows.items()))
        return Unreadable(self.rows + other.rows, tuple(listed))


@dataclass(frozen=True, slots=True)
class WindowCount:
    """A window in which source and sink do not agree, by its beginning: None for rows without a time."""

    begin_ms: int | None
    source_rows: int
    sink_rows: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in one place. `amount` is None if no amounts were compared.

    `unreadable` are rows that have an id, and a time or an amount that cannot be read.
    """

    name: str
    rows: int
    without_id: int
    amount: Decimal | None
    unreadable: Unreadable = Unreadable()

    @property
    def plain_amount(self) -> Decimal | None:
        """The amount without zeros at its end."""
        return None if self.amount is None else self.amount.normalize(EXACT)


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """How one sink differs from the source.

    `lost`: sent, but missing. `doubled`: stored more often than sent. `foreign`: stored, but never sent. `altered`:
    stored as often as sent, but with another amount or in another window.
    """

    sink: Counted
    lost: Findings
    doubled: Findings
    foreign: Findings
    altered: Findings
    buckets_compared: int
    rows_compared: int
    windows: tuple[WindowCount, ...] = ()
    without_id_expected: int = 0
    """How many rows without an id the sink has to have: none, or as many as the source, if they are counted."""

    @property
    def is_clean(self) -> bool:
        is_readable = self.sink.without_id == self.without_id_expected and not self.sink.unreadable.rows
        return is_readable and not any(getattr(self, kind).rows for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether every sink holds what the source holds. What cannot be read proves nothing: a clean audit has none."""

    source: Counted
    sinks: tuple[SinkVerdict, ...]
    key: str
    counts_without_id: bool = False
    """Whether a row without an id is only counted: each sink has to have as many such rows as the source."""

    @property
    def is_clean(self) -> bool:
        is_readable = (self.counts_without_id or not self.source.without_id) and not self.source.unreadable.rows
        return is_readable and all(sink.is_clean for sink in self.sinks)

    def as_json(self) -> dict[str, Any]:
        """The whole verdict as plain values, for a program."""
        return {
            "clean": self.is_clean,
            "key": self.key,
            "counts_without_id": self.counts_without_id,
            "source": _counted_as_json(self.source),
            "sinks": [_sink_as_json(sink) for sink in self.sinks],
        }


def _counted_as_json(counted: Counted) -> dict[str, Any]:
    amount = {} if counted.amount is None else {"amount": f"{counted.plain_amount:f}"}
    return {
        "name": counted.name,
        "rows": counted.rows,
        "without_id": counted.without_id,
        "unreadable": {"rows": counted.unreadable.rows, "listed": _listed_as_json(counted.unreadable.listed)},
        **amount,
    }


def _sink_as_json(verdict: SinkVerdict) -> dict[str, Any]:
    findings = {kind: _findings_as_json(getattr(verdict, kind)) for kind in KINDS}
    findings[LOST][REPEATS] = verdict.lost.repeats
    compared = {"buckets_compared": verdict.buckets_compared, "rows_compared": verdict.rows_compared}
    windows = [
        {"begin_ms": window.begin_ms, "source_rows": window.source_rows, "sink_rows": window.sink_rows}
        for window in verdict.windows
    ]
    return {"clean": verdict.is_clean, **_counted_as_json(verdict.sink), **findings, **compared, "windows": windows}


def _findings_as_json(findings: Findings) -> dict[str, Any]:
    return {"rows": findings.rows, "ids": findings.ids, "listed": _listed_as_json(findings.listed)}


def _listed_as_json(listed: Iterable[Finding]) -> list[dict[str, Any]]:
    return [{"id": finding.text, "rows": finding.rows} for finding in listed]
