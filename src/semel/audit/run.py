"""An audit from its beginning to its verdict: sums first, and then only what differs, id by id.

What to read of each place is fixed at the beginning. The second reading has to give the same sums as the first, or
there is no verdict: data that changes while it is counted cannot be judged. An audit writes only its own temporary
files.
"""

import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from semel.audit.comparison import (
    SIZES,
    Division,
    GroupToCompare,
    PieceToDivide,
    Sizes,
    compare,
    divide,
    group_count,
    with_ids,
)
from semel.audit.errors import AuditFailed, meant
from semel.audit.hashes import KEY_BYTES
from semel.audit.places import Piece, Place
from semel.audit.rows import Selector, Span, Wanted, unknown_field
from semel.audit.tally import NO_TIME, Chosen, Grid, Tally, agree_in, differing, everything, rows_in
from semel.audit.verdict import KINDS, LISTED_DEFAULT, Counted, Findings, SinkVerdict, Verdict, WindowCount
from semel.audit.workers import PROCESSES_FROM_ROWS, Workers, cores

# At 10^8 rows a bucket holds 6,000 ids, so that finding a lost id takes no longer than noticing it.
BUCKETS_DEFAULT: Final = 16_384
# The buckets of each window, if there are windows.
WINDOW_BUCKETS_DEFAULT: Final = 1_024
BUCKETS_MAX: Final = 1_048_576
# Among how many rows the audit looks for the names of fields, if no row has the field that it was told.
FIELDS_FROM_ROWS: Final = 1_000

# What is being done, how many rows have been read, and about how many there are; 0 if unknown.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How an audit is made; `None` leaves a choice to the audit."""

    window_ms: int | None = None
    since_ms: int | None = None
    before_ms: int | None = None
    once: bool = False
    listed_max: int = LISTED_DEFAULT
    buckets: int | None = None
    key: str | None = None
    processes: int | None = None
    counts_without_id: bool = False

    def grid(self) -> Grid:
        buckets = self.buckets or (BUCKETS_DEFAULT if self.window_ms is None else WINDOW_BUCKETS_DEFAULT)
        if not 1 <= buckets <= BUCKETS_MAX or buckets & (buckets - 1):
            raise AuditFailed(f"{buckets} buckets: it has to be a power of two, {BUCKETS_MAX} at most")
        if self.window_ms is not None and self.window_ms < 1:
            raise AuditFailed(f"a window of {self.window_ms} ms: it has to be 1 ms at least")
        if self.listed_max < 0:
            raise AuditFailed(f"{self.listed_max} ids to name: it has to be 0 at least")
        return Grid(_key(self.key), buckets, self.window_ms)


def _key(text: str | None) -> bytes:
    if text is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise AuditFailed(f"the key {text!r} is not {2 * KEY_BYTES} hexadecimal digits")
    return key


def run(source: Place, sinks: Sequence[Place], plan: Plan, progress: Progress, sizes: Sizes = SIZES) -> Verdict:
    """Compare every sink with the source."""
    _refuse_unequal(source, sinks, plan)
    places = [source, *sinks]
    sides = [_Side(place, place.pieces(), str(number)) for number, place in enumerate(places)]
    work = _Audit(plan, plan.grid(), progress, sizes)
    with Workers(_processes(plan, sides)) as workers:
        tallies = [work.count(side, workers) for side in sides]
        verdicts = [
            work.judge(sides[0], side, tallies[0], tally, workers)
            for side, tally in zip(sides[1:], tallies[1:], strict=True)
        ]
    return Verdict(_counted(sides[0], tallies[0]), tuple(verdicts), work.grid.key.hex(), plan.counts_without_id)


def _refuse_unequal(source: Place, sinks: Sequence[Place], plan: Plan) -> None:
    """Refuse an amount or a time on one side only: every row would differ."""
    if not sinks:
        raise AuditFailed("there is no sink to hold the source against")
    needs_time = plan.window_ms is not None or plan.since_ms is not None or plan.before_ms is not None
    for place in (source, *sinks):
        if needs_time and place.wanted.time is None:
            raise AuditFailed(f"{place.name}: windows and spans of time need to know where its time is: time=COLUMN")
        if (place.wanted.amount is None) != (source.wanted.amount is None):
            raise AuditFailed(f"amounts are compared on all sides or on none: {source.name} and {place.name} differ")


def _processes(plan: Plan, sides: Sequence["_Side"]) -> int:
    if plan.processes is not None:
        if plan.processes < 1:
            raise AuditFailed(f"{plan.processes} processes: it takes 1 at least")
        return plan.processes
    pieces = max(len(side.pieces) for side in sides)
    rows = sum(side.rows for side in sides)
    return min(cores(), pieces) if rows >= PROCESSES_FROM_ROWS else 1


@dataclass(frozen=True, slots=True)
class _Side:
    """A place, and the pieces it had when the audit began."""

    place: Place
    pieces: Sequence[Piece]
    name: str

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class _PieceToCount:
    piece: Piece
    wanted: Wanted
    span: Span
    grid: Grid
    listed_max: int


def _count(task: _PieceToCount) -> Tally:
    tally = Tally(task.grid, task.listed_max)
    for rows in task.piece.read(task.wanted):
        rows = task.span.within(rows)
        tally.without_id += rows.ids.null_count
        tally.add(with_ids(rows))
    return tally


def _refuse_unknown_field(side: _Side) -> None:
    """Without this, a wrong name in an address would make every id of the other side a finding."""
    id = side.place.wanted.id
    rows = (rows for piece in side.pieces for rows in piece.read(Wanted(Selector(id.column))))
    first = next((rows.ids for rows in rows if len(rows.ids)), None) if id.path else None
    unknown = None if first is None else unknown_field(first.slice(0, FIELDS_FROM_ROWS), id.path)
    if unknown is not None:
        name, known = unknown
        raise AuditFailed(f"{side.place.name}: no row has a field {name!r} in {id.column}{meant(name, known)}")


class _Audit:
    """The steps of one audit."""

    def __init__(self, plan: Plan, grid: Grid, progress: Progress, sizes: Sizes) -> None:
        self.grid = grid
        self._plan = plan
        self._span = Span(plan.since_ms, plan.before_ms)
        self._progress = progress
        self._sizes = sizes

    def count(self, side: _Side, workers: Workers) -> Tally:
        """The sums of all rows of a place."""
        listed_max = self._plan.listed_max
        tally = Tally(self.grid, listed_max)
        tasks = [_PieceToCount(piece, self._wanted(side), self._span, self.grid, listed_max) for piece in side.pieces]
        for piece_tally in workers.each(_count, tasks):
            tally.merge(piece_tally)
            self._progress(f"counting {side.place.name}", tally.rows, side.rows)
        if tally.without_id and not tally.rows:
            _refuse_unknown_field(side)
        return tally

    def judge(self, source: _Side, sink: _Side, sent: Tally, stored: Tally, workers: Workers) -> SinkVerdict:
        """What is wrong with a sink. With `once` the sums cannot be compared, so all rows are."""
        chosen = everything(sent, stored) if self._plan.once else differing(sent, stored)
        rows = rows_in(sent, chosen) + rows_in(stored, chosen)
        findings = dict.fromkeys(KINDS, Findings())
        if chosen:
            mean = (sent.id_bytes + stored.id_bytes) / max(sent.rows + stored.rows, 1)
            groups = group_count(rows, mean, self._sizes)
            try:
                with tempfile.TemporaryDirectory(prefix="semel-audit-") as directory:
                    division = Division(self.grid, chosen, groups, directory)
                    self._divide(source, sent, division, workers)
                    self._divide(sink, stored, division, workers)
                    findings = self._compare(source, sink, division, rows, workers)
            except OSError as error:
                raise AuditFailed(f"temporary files in {tempfile.gettempdir()}: {error.strerror or error}") from None
        return SinkVerdict(
            _counted(sink, stored),
            **findings,
            buckets_compared=sum(int(buckets.sum()) for buckets in chosen.values()),
            rows_compared=rows,
            windows=self._windows(sent, stored, chosen),
            without_id_expected=sent.without_id if self._plan.counts_without_id else 0,
        )

    def _divide(self, side: _Side, first: Tally, division: Division, workers: Workers) -> None:
        again = Tally(self.grid)
        read = 0
        tasks = [
            PieceToDivide(piece, self._wanted(side), self._span, division, side.name, number)
            for number, piece in enumerate(side.pieces)
        ]
        for piece, tally in zip(side.pieces, workers.each(divide, tasks), strict=True):
            again.merge(tally)
            read += piece.rows
            self._progress(f"reading {side.place.name} again", read, side.rows)
        if not agree_in(first, again, division.chosen):
            raise AuditFailed(
                f"{side.place.name} changed while it was audited: audit what is at rest, "
                "or only the events before some time"
            )

    def _compare(
        self, source: _Side, sink: _Side, division: Division, rows: int, workers: Workers
    ) -> dict[str, Findings]:
        listed_max = self._plan.listed_max
        tasks = [
            GroupToCompare(
                f"{division.directory}/{group}",
                *(source.name, sink.name, listed_max, self._plan.once, self._sizes.counted_rows),
            )
            for group in range(division.groups)
        ]
        total = dict.fromkeys(KINDS, Findings())
        for number, findings in enumerate(workers.each(compare, tasks), start=1):
            for kind, one in findings.items():
                total[kind] = total[kind].plus(one, listed_max)
            self._progress(f"comparing ids with {sink.place.name}", rows * number // len(tasks), rows)
        return total

    def _wanted(self, side: _Side) -> Wanted:
        """A time that is not compared is not read."""
        wanted = side.place.wanted
        if self.grid.window_ms is None and self._span == Span():
            return Wanted(wanted.id, None, wanted.amount)
        return wanted

    def _windows(self, sent: Tally, stored: Tally, chosen: dict[int, Chosen]) -> tuple[WindowCount, ...]:
        """The first windows that do not agree: at most as many as ids are named."""
        if self.grid.window_ms is None:
            return ()
        apart = sorted(differing(sent, stored))[: self._plan.listed_max]
        return tuple(
            WindowCount(None if window == NO_TIME else window, *(_rows_of(tally, window) for tally in (sent, stored)))
            for window in apart
        )


def _rows_of(tally: Tally, window: int) -> int:
    cells = tally.windows.get(window)
    return 0 if cells is None else int(cells.counts.sum())


def _counted(side: _Side, tally: Tally) -> Counted:
    amount: Decimal | None = None if side.place.wanted.amount is None else tally.amount
    return Counted(side.place.name, tally.rows, tally.without_id, amount, tally.unreadable)
