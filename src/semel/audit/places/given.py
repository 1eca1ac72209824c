"""Ids that the program itself has: the records that it knows to have sent, to be compared with the stored ones."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from semel.audit.errors import AuditFailed
from semel.audit.places import BATCH_ROWS, PIECE_ROWS, Piece
from semel.audit.rows import Rows, Selector, Wanted


@dataclass(frozen=True)
class _Part:
    table: Any

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        for batch in self.table.to_batches(max_chunksize=BATCH_ROWS):
            yield wanted.rows_of({name: batch.column(name) for name in wanted.columns})


class Given:
    """An Arrow table in memory, or only ids: text, bytes, whole numbers or UUIDs."""

    _piece_rows: int = PIECE_ROWS

    def __init__(
        self,
        rows: Any,
        *,
        id: str = "id",
        time: str | None = None,
        amount: str | None = None,
        name: str = "what was given",
    ) -> None:
        self.name = name
        self.wanted = Wanted(
            Selector.parse(id),
            None if time is None else Selector.parse(time),
            None if amount is None else Selector.parse(amount),
        )
        self._table = rows if isinstance(rows, pa.Table) else _of_ids(rows, self.wanted.id.column)

    def pieces(self) -> Sequence[Piece]:
        names = self._table.column_names
        for column in self.wanted.columns:
            if names.count(column) != 1:
                has = "two columns" if column in names else "no column"
                raise AuditFailed(f"{self.name} has {has} {column!r}: there are {', '.join(names)}")
        begins = range(0, max(self._table.num_rows, 1), self._piece_rows)
        return [_Part(self._table.slice(begin, self._piece_rows)) for begin in begins]


def _of_ids(ids: Iterable[object], column: str) -> Any:
    return pa.table({column: pa.array([_bytes_of(value) for value in ids], pa.binary())})


def _bytes_of(value: object) -> bytes | None:
    """None for a text with half a character (a lone surrogate), which cannot be encoded: as in JSON, it is no id."""
    if isinstance(value, bytes | None):
        return value
    with contextlib.suppress(UnicodeEncodeError):
        return str(value).encode()
    return None
