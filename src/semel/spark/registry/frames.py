"""Confluent's framing: a zero byte and the id of the schema, in four bytes, before each value; and the task that
decodes such values of Avro, each by the schema under which it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from semel.client.arrow.columns import numbers
from semel.client.arrow.encoding import column_of, fields_of
from semel.client.arrow.layout import Fields, Integers
from semel.spark.registry.avro import parsed
from semel.spark.registry.client import Registered
from semel.spark.registry.decoder import Decoder, Rows, decoder
from semel.spark.registry.encoder import encoded, joined
from semel.spark.worker import settle

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FRAME_BYTES: Final = 5
REASON: Final = "reason"
RAW: Final = "raw"
_AFTER_THE_VALUE: Final = "the end, after which there are more bytes"


def frame(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(FRAME_BYTES - 1, "big")


def unframed() -> str:
    return "the value does not begin with a schema's id, as those of Confluent's serializers do"


def unknown(subject: str) -> tuple[str, str]:
    """What is said of an id, before it and after it."""
    return "schema id ", f" belonged to no version of subject {subject} when the query started"


def undecodable(version: Registered, subject: str) -> str:
    return f"the bytes after schema id {version.id} are no {subject}, version {version.version}"


@dataclass(frozen=True)
class FromAvro:
    """Replaces a column of framed bytes by what they say. Two more columns have the bytes of a row that cannot be read,
    and the reason."""

    column: str
    subject: str
    versions: tuple[Registered, ...]
    reader: tuple[str, ...]
    without: tuple[str, ...]

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        settle()
        reader = parsed(self.reader)
        versions = {version.id: version for version in self.versions}
        known: dict[int, Decoder] = {}
        for batch in batches:
            column = batch.column(self.column)
            octets, fields = fields_of(column)
            ids = ids_of(octets, fields)
            rows = Rows(octets, Fields(fields.starts + FRAME_BYTES, fields.lengths - FRAME_BYTES))
            reasons = {row: unframed() for row in np.flatnonzero((ids < 0) & (fields.lengths >= 0)).tolist()}
            places, pieces = [], []
            for schema_id in np.unique(ids[ids >= 0]).tolist():
                which = np.flatnonzero(ids == schema_id)
                version = versions.get(schema_id)
                if version is None:
                    reasons |= dict.fromkeys(which.tolist(), str(schema_id).join(unknown(self.subject)))
                    continue
                if schema_id not in known:
                    known[schema_id] = decoder(parsed(version.texts), reader, self.without)
                pieces.append(known[schema_id](rows, which))
                rows.refuse(which, rows.at[which] < rows.ends[which], _AFTER_THE_VALUE)
                places.append(which)
            for row, place in rows.wrong.items():
                reasons[row] = f"{undecodable(versions[ids[row]], self.subject)}, at {_named(place)}"
            yield self._replaced(batch, _together(places, pieces, reasons, len(batch), reader.type), reasons)

    def _replaced(self, batch: RecordBatch, values: Any, reasons: dict[int, str]) -> RecordBatch:
        columns = [values if name == self.column else batch.column(name) for name in batch.schema.names]
        said, raw = pa.nulls(len(batch), pa.string()), pa.nulls(len(batch), pa.binary())
        if reasons:
            is_bad = np.zeros(len(batch), np.bool_)
            is_bad[list(reasons)] = True
            said = pa.array([reasons.get(row) for row in range(len(batch))], pa.string())
            places = numbers(pa.int64(), np.arange(len(batch)), is_bad)
            raw = batch.column(self.column).take(places).cast(pa.binary())
        return pa.RecordBatch.from_arrays([*columns, said, raw], [*batch.schema.names, REASON, RAW])


def _named(place: str) -> str:
    return place if place == _AFTER_THE_VALUE else f"field {place}" if place else "its beginning"


def ids_of(octets: Any, fields: Fields) -> Integers:
    """The id with which each value begins; -1 for one that begins with none."""
    padded = np.concatenate((octets, np.zeros(FRAME_BYTES, np.uint8)))
    head = padded[np.minimum(fields.starts, len(octets))[:, None] + np.arange(FRAME_BYTES)]
    ids = np.ascontiguousarray(head[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    return np.where((fields.lengths >= FRAME_BYTES) & (head[:, 0] == 0), ids, -1)


def _together(places: list[Integers], pieces: list[Any], reasons: dict[int, str], count: int, kind: Any) -> Any:
    """The values of all rows in their order; null for those that have none."""
    if not pieces:
        return pa.nulls(count, kind)
    if len(pieces) == 1 and len(places[0]) == count and not reasons:
        return pieces[0]
    order = np.full(count, -1)
    order[np.concatenate(places)] = np.arange(sum(map(len, places)))
    order[list(reasons)] = -1
    return pa.concat_arrays(pieces).take(numbers(pa.int64(), order, order >= 0))


@dataclass(frozen=True)
class ToAvro:
    """Replaces a column by its values as framed bytes."""

    column: str
    schema: Registered

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        settle()
        node = parsed(self.schema.texts)
        prefix = column_of(frame(self.schema.id))[0]
        for batch in batches:
            place = batch.schema.get_field_index(self.column)
            column = batch.column(place)
            is_there = column.is_valid()
            values = joined(prefix, encoded(node, column.filter(is_there)))
            places = numbers(pa.int64(), np.cumsum(is_there.to_numpy(False)) - 1, is_there.to_numpy(False))
            columns = [values.take(places) if at == place else one for at, one in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)
