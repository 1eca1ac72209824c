"""What a task holds of its rows until it writes a file of them, whatever the format of the table is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow

# How many bytes of rows a task holds. Parquet makes a fraction of it.
FILE_BYTES: Final = 256 * 1024 * 1024


def gathered(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    """The rows of a task, as many at a time as go into a file; raises if a text is none."""
    import pyarrow

    held: list[pyarrow.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            # Arrow takes the bytes of a text as they are, and a reader would fail.
            batch.validate(full=True)
            held.append(batch)
            held_bytes += batch.nbytes
        if held_bytes >= FILE_BYTES:
            yield pyarrow.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pyarrow.Table.from_batches(held)
