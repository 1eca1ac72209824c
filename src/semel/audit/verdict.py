"""What came of an audit: counts that are exact, and the ids behind them as far as they were asked for."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

# So many ids of each kind are named, unless more are asked for. The counts are exact whatever this is.
LISTED_DEFAULT: Final = 100

# What may be wrong with a row, in the order in which it is told.
LOST: Final = "lost"
DOUBLED: Final = "doubled"
FOREIGN: Final = "foreign"
ALTERED: Final = "altered"
KINDS: Final = (LOST, DOUBLED, FOREIGN, ALTERED)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """An id, and how many of its rows are concerned."""

    id: bytes
    rows: int

    @property
    def text(self) -> str:
        """The id as a person reads it: its text, or its bytes as `0x...` where they are no text."""
        try:
            text = self.id.decode()
        except UnicodeDecodeError:
            return f"0x{self.id.hex()}"
        return text if text.isprintable() and text else f"0x{self.id.hex()}"


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one kind: in how many rows, of how many ids, and the first of these in the order of their bytes."""

    rows: int = 0
    ids: int = 0
    listed: tuple[Finding, ...] = ()

    def plus(self, rows: int, ids: int, listed: Iterable[Finding], listed_max: int) -> "Findings":
        return Findings(self.rows + rows, self.ids + ids, tuple(heapq.nsmallest(listed_max, [*self.listed, *listed])))


@dataclass(frozen=True, slots=True)
class WindowCount:
    """A window in which source and sink do not agree, by its beginning: None for rows without a time."""

    begin_ms: int | None
    source_rows: int
    sink_rows: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in one place. `amount` is None where no amounts were compared."""

    name: str
    rows: int
    without_id: int
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """How one sink stands against the source.

    `lost`: sent, and not there. `doubled`: there more often than sent. `foreign`: there, and never sent. `altered`:
    there as often as sent, but with another amount or in another window.
    """

    sink: Counted
    lost: Findings
    doubled: Findings
    foreign: Findings
    altered: Findings
    buckets_compared: int
    rows_compared: int
    windows: tuple[WindowCount, ...] = ()

    @property
    def is_clean(self) -> bool:
        return self.sink.without_id == 0 and not any(getattr(self, kind).rows for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether every sink holds what the source holds. Rows without an id prove nothing, so a clean audit has none."""

    source: Counted
    sinks: tuple[SinkVerdict, ...]
    key: str

    @property
    def is_clean(self) -> bool:
        return self.source.without_id == 0 and all(sink.is_clean for sink in self.sinks)

    def as_json(self) -> dict[str, Any]:
        """All of it, as plain values for a program."""
        return {
            "clean": self.is_clean,
            "key": self.key,
            "source": _counted_as_json(self.source),
            "sinks": [_sink_as_json(sink) for sink in self.sinks],
        }


def _counted_as_json(counted: Counted) -> dict[str, Any]:
    amount = {} if counted.amount is None else {"amount": f"{counted.amount.normalize():f}"}
    return {"name": counted.name, "rows": counted.rows, "without_id": counted.without_id, **amount}


def _sink_as_json(verdict: SinkVerdict) -> dict[str, Any]:
    found = {kind: _findings_as_json(getattr(verdict, kind)) for kind in KINDS}
    compared = {"buckets_compared": verdict.buckets_compared, "rows_compared": verdict.rows_compared}
    windows = [
        {"begin_ms": window.begin_ms, "source_rows": window.source_rows, "sink_rows": window.sink_rows}
        for window in verdict.windows
    ]
    return {"clean": verdict.is_clean, **_counted_as_json(verdict.sink), **found, **compared, "windows": windows}


def _findings_as_json(findings: Findings) -> dict[str, Any]:
    listed = [{"id": finding.text, "rows": finding.rows} for finding in findings.listed]
    return {"rows": findings.rows, "ids": findings.ids, "listed": listed}
