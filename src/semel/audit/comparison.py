"""Id by id: the buckets whose sums differ are read a second time, and every lost and every doubled id is named.

Only rows of differing buckets are kept. They go to files in a temporary directory, divided by the id's hash into groups
that fit into memory; then each group is counted by itself, on both sides, by the bytes of the ids and no longer by
hashes. So a sink in which everything is missing takes more disk and time, but not more memory.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semel.audit.hashes import siphash
from semel.audit.long_ids import shortened
from semel.audit.places import Piece
from semel.audit.rows import AMOUNT_TYPE, ID_TYPE, Rows, Span, Wanted, filtered
from semel.audit.tally import Chosen, Grid, Tally
from semel.audit.verdict import ALTERED, DOUBLED, FOREIGN, KINDS, LOST, REPEATS, Finding, Findings

# Roughly the memory that counting a group takes: its rows, and the table that counts them.
GROUP_BYTES_MAX: Final = 256 * 1024 * 1024
# What a row takes besides its id: window, amount, counts, and its places in the tables.
ROW_OVERHEAD_BYTES: Final = 150
# Each process that divides rows keeps one file for each group open.
GROUPS_MAX: Final = 512
# Rows of a group are collected up to this number, then counted together.
COUNTED_ROWS: Final = 1_048_576

_SCHEMA: Final = pa.schema([("id", ID_TYPE), ("window", pa.int64()), ("amount", AMOUNT_TYPE)])
_KEYS: Final = ["id", "window", "amount"]


class Sizes(NamedTuple):
    """How much is held at a time."""

    group_bytes_max: int = GROUP_BYTES_MAX
    groups_max: int = GROUPS_MAX
    counted_rows: int = COUNTED_ROWS


SIZES: Final = Sizes()


@dataclass(frozen=True, slots=True)
class Division:
    """How the rows of differing buckets are divided into groups, and where these are kept."""

    grid: Grid
    chosen: dict[int, Chosen]
    groups: int
    directory: str


@dataclass(frozen=True, slots=True)
class PieceToDivide:
    """A piece of a place, and the side and number that name its files."""

    piece: Piece
    wanted: Wanted
    span: Span
    division: Division
    side: str
    number: int


def group_count(rows: int, id_bytes_mean: float, sizes: Sizes = SIZES) -> int:
    """How many groups it takes for each to fit into memory."""
    groups = math.ceil(rows * (id_bytes_mean + ROW_OVERHEAD_BYTES) / sizes.group_bytes_max)
    return min(max(groups, 1), sizes.groups_max)


def divide(task: PieceToDivide) -> Tally:
    """Read a piece again and keep the rows in differing buckets; returns their sums, to be compared with those of the
    first reading.
    """
    division = task.division
    tally = Tally(division.grid)
    with _GroupFiles(division, task.side, task.number) as files:
        for rows in task.piece.read(task.wanted):
            rows = tally.add_chosen(with_ids(task.span.within(rows)), division.chosen)
            if len(rows.ids):
                files.add(rows)
    return tally


def with_ids(rows: Rows) -> Rows:
    return filtered(rows, rows.ids.is_valid()) if rows.ids.null_count else rows


class _GroupFiles:
    """The files with the rows of one piece, one for each group."""

    def __init__(self, division: Division, side: str, number: int) -> None:
        self._division = division
        self._name = f"{side}-{number}.arrow"
        self._writers: dict[int, Any] = {}

    def __enter__(self) -> "_GroupFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def add(self, rows: Rows) -> None:
        nulls = pa.nulls(len(rows.ids), AMOUNT_TYPE)
        windows = pa.array(self._division.grid.windows_of(rows))
        batch = pa.record_batch([rows.ids, windows, nulls if rows.amounts is None else rows.amounts], schema=_SCHEMA)
        if self._division.groups == 1:
            self._writer(0).write_batch(batch)
            return
        key = self._division.grid.key
        digests = siphash(shortened(rows.ids, key), key)
        groups = digests.low % np.uint64(self._division.groups)
        for group in np.unique(groups).tolist():
            self._writer(group).write_batch(batch.filter(pa.array(groups == group)))

    def _writer(self, group: int) -> Any:
        if group not in self._writers:
            directory = Path(self._division.directory, str(group))
            directory.mkdir(exist_ok=True)
            self._writers[group] = pa.ipc.new_stream(str(directory / self._name), _SCHEMA)
        return self._writers[group]


@dataclass(frozen=True, slots=True)
class GroupToCompare:
    """The directory of a group, the names of the two sides, and how many ids of each kind are named.

    With `once`, an id counts once in the source, however often the source has it.
    """

    directory: str
    source: str
    sink: str
    listed_max: int
    once: bool
    counted_rows: int = COUNTED_ROWS


def compare(task: GroupToCompare) -> dict[str, Findings]:
    """What is wrong with the ids of one group, by its kind."""
    counted = pa.concat_tables(
        [
            _named(_counted(task, task.source), "sent", "found"),
            _named(_counted(task, task.sink), "found", "sent"),
        ]
    )
    both = counted.group_by(_KEYS).aggregate([("sent", "sum"), ("found", "sum")])
    sent, arrived = both["sent_sum"], both["found_sum"]
    if task.once:
        sent = pc.min_element_wise(sent, 1)
    counts = {"sent": sent, "found": arrived, **_apart(sent, arrived)}
    rows = pa.table({"id": both["id"], "window": both["window"], **counts})
    return _findings(_by_id(_by_window(rows)), task.listed_max)


def _apart(less: Any, more: Any) -> dict[str, Any]:
    zero = pa.scalar(0, pa.int64())
    return {
        "missing": pc.max_element_wise(pc.subtract(less, more), zero),
        "extra": pc.max_element_wise(pc.subtract(more, less), zero),
    }


def _by_window(rows: Any) -> Any:
    """For each id in each window: a missing row and an extra row together are one row with another amount."""
    counts = ("sent", "found", "missing", "extra")
    summed = rows.group_by(["id", "window"]).aggregate([(name, "sum") for name in counts])
    missing, extra = summed["missing_sum"], summed["extra_sum"]
    altered = pc.min_element_wise(missing, extra)
    surplus = pc.subtract(extra, altered)
    was_sent = pc.greater(summed["sent_sum"], 0)
    lost = pc.subtract(missing, altered)
    return pa.table(
        {
            "id": summed["id"],
            LOST: lost,
            REPEATS: pc.if_else(pc.greater(summed["found_sum"], 0), lost, 0),
            DOUBLED: pc.if_else(was_sent, surplus, 0),
            FOREIGN: pc.if_else(was_sent, 0, surplus),
            ALTERED: altered,
        }
    )


def _by_id(windows: Any) -> Any:
    """For each id: a row lost in one window and a foreign row in another are one row with another time."""
    wrong = windows.filter(
        pc.or_(
            pc.or_(pc.greater(windows[LOST], 0), pc.greater(windows[DOUBLED], 0)),
            pc.or_(pc.greater(windows[FOREIGN], 0), pc.greater(windows[ALTERED], 0)),
        )
    )
    summed = wrong.group_by("id").aggregate([(kind, "sum") for kind in (*KINDS, REPEATS)])
    lost, foreign = summed[f"{LOST}_sum"], summed[f"{FOREIGN}_sum"]
    moved = pc.min_element_wise(lost, foreign)
    still_lost = pc.subtract(lost, moved)
    return pa.table(
        {
            "id": summed["id"],
            LOST: still_lost,
            REPEATS: pc.min_element_wise(still_lost, summed[f"{REPEATS}_sum"]),
            DOUBLED: summed[f"{DOUBLED}_sum"],
            FOREIGN: pc.subtract(foreign, moved),
            ALTERED: pc.add(summed[f"{ALTERED}_sum"], moved),
        }
    )


def _findings(ids: Any, listed_max: int) -> dict[str, Findings]:
    findings = {}
    for kind in KINDS:
        wrong = ids.select(["id", kind]).filter(pc.greater(ids[kind], 0))
        # Arrow takes no number that is larger than 64 bits.
        count = min(listed_max, wrong.num_rows)
        smallest = pc.select_k_unstable(wrong, count, [("id", "ascending")]) if count else []
        first = wrong.take(smallest).to_pydict() if len(smallest) else {"id": [], kind: []}
        listed = [Finding(id, rows) for id, rows in zip(first["id"], first[kind], strict=True)]
        repeats = pc.sum(ids[REPEATS]).as_py() or 0 if kind == LOST else 0
        findings[kind] = Findings(pc.sum(wrong[kind]).as_py() or 0, wrong.num_rows, tuple(sorted(listed)), repeats)
    return findings


def _counted(task: GroupToCompare, side: str) -> Any:
    """How often one side has each row of a group."""
    counted = _SCHEMA.append(pa.field("rows", pa.int64())).empty_table()
    waiting: list[Any] = []
    for batch in _batches(Path(task.directory), side):
        waiting.append(batch)
        if sum(len(one) for one in waiting) >= task.counted_rows:
            counted, waiting = _recounted(counted, waiting), []
    return _recounted(counted, waiting)


def _batches(directory: Path, side: str) -> Iterator[Any]:
    for path in sorted(directory.glob(f"{side}-*.arrow")):
        with pa.ipc.open_stream(str(path)) as stream:
            yield from stream


def _recounted(counted: Any, batches: Sequence[Any]) -> Any:
    fresh = [batch.append_column("rows", pa.array(np.ones(len(batch), np.int64))) for batch in batches]
    summed = (
        pa.concat_tables([counted, *(pa.Table.from_batches([batch]) for batch in fresh)])
        .group_by(_KEYS)
        .aggregate([("rows", "sum")])
    )
    return summed.rename_columns([*_KEYS, "rows"])


def _named(counted: Any, rows: str, none: str) -> Any:
    table = counted.rename_columns([*_KEYS, rows]).append_column(none, pa.array(np.zeros(len(counted), np.int64)))
    return table.select([*_KEYS, "sent", "found"])
