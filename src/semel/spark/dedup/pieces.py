"""Packs rows for a stateful operator into pieces: Arrow record batches inside a binary column.

Spark hands rows to Python's stateful functions through pandas, which turns an integer column with a null into floats,
cuts timestamps at the year 2262, and makes a call for each group. Packed rows do not change, and Spark shuffles and
groups only a few pieces. A piece holds its own schema, because held rows are in the state, and a later version of the
query may read them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Final

import numpy
import pyarrow as pa
import pyarrow.compute
from pyspark import TaskContext

from semel.spark.worker import settle

PIECE_ROWS_MAX: Final = 100_000
"""How many rows are gathered before they are sorted into pieces: so many that a piece is worth its header."""

PIECE_BYTES_MAX: Final = 16 << 20
"""The same in bytes, for wide rows: a task holds this much besides the batch that it reads."""

BUCKET: Final = "_semel_bucket"
PLACE: Final = "_semel_place"
ROWS: Final = "_semel_rows"
NEWEST: Final = "_semel_newest"

_PLACES_PER_PARTITION: Final = 1 << 40
_TIME: Final = pa.timestamp("us", tz="UTC")


def packed(rows: pa.Table, *, compression: str = "lz4") -> bytes:
    """Compressed, because a piece is copied many times on its way: out of Python, through the shuffle, into Python."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpacked(piece: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(piece).read_all()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables one after the other, with the columns of the last: an older version of the query may have packed an
    earlier one."""
    schema = tables[-1].schema
    return pa.concat_tables([conformed(table, schema) for table in tables]).combine_chunks()


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with exactly these columns; a column that they lack is null."""
    if rows.schema.equals(schema):
        return rows
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


class Packer:
    """Packs the rows of one task into a piece for each bucket: for `mapInArrow`.

    Each piece has its place in the input. So a replay of the batch takes the same one of two copies for the first,
    whatever order the shuffle brings them in. With `wakes_all`, one task also sends every bucket an empty piece, so
    that each is judged at the time of the batch.
    """

    def __init__(
        self,
        key: str,
        buckets: int,
        event_time: str | None,
        *,
        wakes_all: bool,
        rows_max: int = PIECE_ROWS_MAX,
        bytes_max: int = PIECE_BYTES_MAX,
    ) -> None:
        self._key = key
        self._buckets = buckets
        self._event_time = event_time
        self._wakes_all = wakes_all
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        task = TaskContext.get()
        partition = task.partitionId() if task else 0
        places = count(partition * _PLACES_PER_PARTITION)
        for rows in self._gathered(batches):
            yield self._batch(places, self._by_bucket(rows))
        if self._wakes_all and partition == 0:
            yield self._batch(places, ((bucket, None) for bucket in range(self._buckets)))

    def _batch(self, places: Iterator[int], pieces: Iterable[tuple[int, pa.Table | None]]) -> pa.RecordBatch:
        buckets, tables = zip(*pieces, strict=True)
        columns = {
            BUCKET: pa.array(buckets, pa.int32()),
            PLACE: pa.array(list(islice(places, len(buckets))), pa.int64()),
            ROWS: pa.array([None if rows is None else packed(rows) for rows in tables], pa.binary()),
        }
        if self._event_time is not None:
            newest = [None if rows is None else pa.compute.max(rows[self._event_time]).cast(_TIME) for rows in tables]
            columns[NEWEST] = pa.array(newest, _TIME)
        return pa.RecordBatch.from_pydict(columns)

    def _by_bucket(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Chooses the bucket by the first half of the key; rows without a key need no state, and go to all buckets in
        turn."""
        keys = rows[self._key]
        buckets = keys.fill_null(0).to_numpy() % self._buckets
        if keys.null_count:
            buckets = numpy.where(keys.is_valid().to_numpy(), buckets, numpy.arange(len(buckets)) % self._buckets)
        # Numbers of two bytes are sorted by counting, which is faster.
        order = numpy.argsort(buckets.astype(numpy.int16), kind="stable")
        rows = rows.take(order)
        begin = 0
        for bucket, row_count in enumerate(numpy.bincount(buckets).tolist()):
            if row_count:
                yield bucket, rows.slice(begin, row_count)
            begin += row_count

    def _gathered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        gathered: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        for batch in batches:
            gathered.append(batch)
            rows += batch.num_rows
            size_bytes += batch.nbytes
            if rows >= self._rows_max or size_bytes >= self._bytes_max:
                yield pa.Table.from_batches(gathered).combine_chunks()
                gathered, rows, size_bytes = [], 0, 0
        if rows:
            yield pa.Table.from_batches(gathered).combine_chunks()


def sliced(rows: pa.Table, rows_max: int = PIECE_ROWS_MAX, bytes_max: int = PIECE_BYTES_MAX) -> Iterator[bytes]:
    """The rows in pieces within the limits."""
    bytes_each = max(1, rows.nbytes // max(1, rows.num_rows))
    step = max(1, min(rows_max, bytes_max // bytes_each))
    for begin in range(0, rows.num_rows, step):
        yield packed(rows.slice(begin, step))


class Unpacker:
    """Turns pieces back into rows: for `mapInArrow`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            for piece in batch.column(0):
                yield from conformed(unpacked(piece.as_buffer()), self._schema).to_batches()
