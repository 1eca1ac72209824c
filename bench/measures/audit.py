"""The measure of `semel audit`: two sets of Parquet files with the same ids, beside a plain sort and merge of both. It
must never count a run that did not find just what was lost and doubled."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from bench.clients import LoadFailed
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel

if TYPE_CHECKING:
    import pyarrow as pa

FILE_IDS: Final = 1_000_000
LOST: Final = 3
DOUBLED: Final = 2
UUID_CHARACTERS: Final = 36
HYPHENS: Final = (8, 13, 18, 23)
NUMBERS_END: Final = 10**15
# The ids of both sides that are compared at a time when they are merged.
MERGE_IDS: Final = 65_536


class Audit(Measure):
    """Ids a second that are compared: two sets of Parquet files, the second in another order. Once both are the same,
    so that the sums alone say so; once 3 ids of the second are lost and 2 are doubled, so that both are read again and
    what differs is compared. The peer is what one would do without it: read both, sort both in memory with Arrow (whole
    numbers with numpy), on two cores as well, and walk along both. It takes memory for all ids, where the audit takes
    some hundred megabytes. Ids are UUIDs as text; and whole numbers, which processors sort many at a time, and which
    the audit takes as the text that they are elsewhere.
    """

    name = "audit"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = (
        Row.beside(
            "audit of 10^8 UUIDs, none lost, ids/s",
            "uuid_clean",
            "uuid_sorted",
            Target(Kind.RATIO_AT_LEAST, 3.0),
        ),
        Row.beside(
            "audit of 10^8 UUIDs, 3 lost and 2 doubled, ids/s",
            "uuid_audited",
            "uuid_sorted",
            Target(Kind.VALUE_AT_LEAST, 5_000_000),
            reason="where something differs, both sides are read again: their ids are kept nowhere.",
        ),
        Row.beside(
            "audit of 10^8 whole numbers, 3 lost and 2 doubled, ids/s",
            "number_audited",
            "number_sorted",
            Target(Kind.RATIO_AT_LEAST, 0.5),
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        """The broker stays where it is: files are read faster than any log, and the time is the audit's alone."""
        return measured(scale.audit_ids)


def measured(ids: int) -> dict[str, float]:
    figures = {}
    for kind in ("uuid", "number"):
        files = made(kind, ids)
        figures[f"{kind}_clean"] = ids / seconds_of(audited, files.source, files.same, 0, 0)
        figures[f"{kind}_audited"] = ids / seconds_of(audited, files.source, files.different, LOST, DOUBLED)
        figures[f"{kind}_sorted"] = ids / seconds_of(sorted_and_merged, files.source, files.different, LOST, DOUBLED)
    return figures


def seconds_of(
    find: Callable[[Path, Path], tuple[int, int]], source: Path, sink: Path, lost: int, doubled: int
) -> float:
    began = time.perf_counter()
    found = find(source, sink)
    seconds = time.perf_counter() - began
    if found != (lost, doubled):
        raise LoadFailed(f"{find.__name__}: {found[0]} lost and {found[1]} doubled, and not {lost} and {doubled}")
    return seconds


def audited(source: Path, sink: Path) -> tuple[int, int]:
    from semel.audit import audit

    [verdict] = audit(f"parquet:{source}?id=id", f"parquet:{sink}?id=id").sinks
    return verdict.lost.rows, verdict.doubled.rows


# -- what one would do without it ------------------------------------------------------------------------------------


class Sorted(NamedTuple):
    """All ids of one side, and the order in which they would be sorted: they are never copied as a whole."""

    ids: pa.Array
    order: pa.Array

    def block(self, at: int, count: int) -> pa.Array:
        return self.ids.take(self.order.slice(at, count))

    def one(self, at: int) -> Any:
        return self.block(at, 1)[0].as_py()


class SortedNumbers(NamedTuple):
    """The same of whole numbers, which are sorted where they are."""

    ids: pa.Array

    def block(self, at: int, count: int) -> pa.Array:
        return self.ids.slice(at, count)

    def one(self, at: int) -> Any:
        return self.ids[at].as_py()


def sorted_and_merged(source: Path, sink: Path) -> tuple[int, int]:
    with ThreadPoolExecutor(2) as threads:
        sent, stored = threads.map(_sorted, (source, sink))
    return _merged(sent, stored)


def _sorted(directory: Path) -> Sorted | SortedNumbers:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    column = pq.read_table(directory, columns=["id"])["id"]
    if pa.types.is_integer(column.type):
        return SortedNumbers(pa.array(np.sort(column.to_numpy())))
    ids = column.cast(pa.large_string()).combine_chunks()
    del column
    return Sorted(ids, pc.sort_indices(ids))


def _merged(sent: Sorted | SortedNumbers, stored: Sorted | SortedNumbers) -> tuple[int, int]:
    """How many ids are in one and not in the other: whole blocks where they agree, and one by one where not."""
    import pyarrow.compute as pc

    at, other, lost, doubled = 0, 0, 0, 0
    while at < len(sent.ids) and other < len(stored.ids):
        count = min(MERGE_IDS, len(sent.ids) - at, len(stored.ids) - other)
        first = pc.index(pc.equal(sent.block(at, count), stored.block(other, count)), False).as_py()
        agreeing = count if first < 0 else first
        at, other = at + agreeing, other + agreeing
        if first >= 0:
            is_lost = sent.one(at) < stored.one(other)
            lost, at = lost + is_lost, at + is_lost
            doubled, other = doubled + (not is_lost), other + (not is_lost)
    return lost + len(sent.ids) - at, doubled + len(stored.ids) - other


# -- the files -------------------------------------------------------------------------------------------------------


class Files(NamedTuple):
    """Three directories: what was sent, the same in another order, and that with some lost and some doubled."""

    source: Path
    same: Path
    different: Path


@cache
def directory() -> Path:
    """Where the files are, for all rounds; removed when the program ends."""
    import atexit

    path = Path(tempfile.mkdtemp(prefix="semel-bench-audit-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def made(kind: str, count: int) -> Files:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = Files(*(directory() / kind / name for name in Files._fields))
    for path in files:
        path.mkdir(parents=True)
    chance = np.random.default_rng(17)
    numbers = range(0, count, FILE_IDS)
    for number, begin in enumerate(numbers):
        ids = (_uuids if kind == "uuid" else _numbers)(chance, min(FILE_IDS, count - begin))
        shuffled = ids.take(pa.array(chance.permutation(len(ids))))
        name = f"{number:04}.parquet"
        # Other names, so that the files come in another order.
        same = files.same / f"{len(numbers) - number:04}.parquet"
        pq.write_table(pa.table({"id": ids}), files.source / name)
        pq.write_table(pa.table({"id": shuffled}), same)
        if number:
            os.link(same, files.different / same.name)
        else:
            left = pa.concat_arrays([shuffled.slice(LOST), shuffled.slice(LOST, DOUBLED)])
            pq.write_table(pa.table({"id": left}), files.different / same.name)
    return files


def _numbers(chance: Any, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(chance.integers(0, NUMBERS_END, count))


def _uuids(chance: Any, count: int) -> pa.Array:
    """As text; made from arrays, because Python's own would take longer than all the rest."""
    import numpy as np
    import pyarrow as pa

    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((count, UUID_CHARACTERS), ord("-"), np.uint8)
    places = [place for place in range(UUID_CHARACTERS) if place not in HYPHENS]
    text[:, places] = digits[chance.integers(0, 16, (count, len(places)), np.uint8)]
    offsets = np.arange(0, count * UUID_CHARACTERS + 1, UUID_CHARACTERS, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
