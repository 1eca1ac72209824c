"""A topic as rows: its committed records, from the first one to the end that the topic has when the audit begins.

Nothing is consumed: no group is joined and no offset committed. The records of an open transaction, and all after its
first one, do not count.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from semel.audit.errors import AuditFailed
from semel.audit.places import PIECE_ROWS, Piece
from semel.audit.rows import Rows, Wanted
from semel.client import EARLIEST, LATEST, ClientSettings, Isolation, LogClient, LogError, Slice
from semel.client.arrow import TYPES, read_slice, schema_of
from semel.client.bad_batches import BadBatch, OnBadBatch, Report, UnreadableBatch
from semel.client.topics import near, partitions_of

_LOG: Final = logging.getLogger(__name__)

TIME_COLUMN: Final = "timestamp"
_HEADERS: Final = "headers"
_HEADER: Final = "header."


@dataclass(frozen=True, slots=True)
class _Records:
    """Some records of one partition, next to each other."""

    settings: ClientSettings
    slice: Slice
    on_bad_batch: OnBadBatch = OnBadBatch.FAIL

    @property
    def rows(self) -> int:
        return self.slice.end - self.slice.start

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        columns = list(dict.fromkeys(_stored(name) for name in wanted.columns))
        bad: list[BadBatch] = []
        try:
            with LogClient(self.settings) as client:
                read = read_slice(client, self.slice, columns, Isolation.READ_COMMITTED, report=self._report(bad))
                for batch in read:
                    yield wanted.rows_of({name: _column(batch, name) for name in wanted.columns})
            # What cannot be read proves nothing: each such batch counts as one row without an id.
            if bad:
                nothing = pa.RecordBatch.from_pylist([{}] * len(bad), schema_of(columns))
                yield wanted.rows_of({name: _column(nothing, name) for name in wanted.columns})
        except LogError as error:
            raise AuditFailed(f"topic {self.slice.topic.name}: {error}") from None

    def _report(self, bad: list[BadBatch]) -> Report:
        def report(one: BadBatch) -> None:
            if self.on_bad_batch is OnBadBatch.FAIL:
                raise UnreadableBatch(one, "on_bad_batch=quarantine in the address goes on after it")
            _LOG.warning("partition %s: %s. The audit goes on after it", self.slice.topic_partition, one)
            bad.append(one)

        return report


@dataclass(frozen=True)
class TopicPlace:
    """A topic of semel, or of any Kafka cluster."""

    name: str
    settings: ClientSettings
    topic: str
    wanted: Wanted
    on_bad_batch: OnBadBatch = OnBadBatch.FAIL
    piece_rows: int = PIECE_ROWS

    def pieces(self) -> Sequence[Piece]:
        for name in self.wanted.columns:
            if _stored(name) not in TYPES:
                raise AuditFailed(f"{self.name}: a record has no {name!r}: it has header.NAME, {', '.join(TYPES)}")
        try:
            with LogClient(self.settings, address_is_new=True) as client:
                topic = client.topics([self.topic]).get(self.topic)
                if topic is None:
                    meant = client.patiently(lambda: near(client.cluster, self.topic))
                    raise AuditFailed(f"{self.name}: there is no such topic{meant}")
                partitions = partitions_of(topic)
                starts = client.offsets(partitions, EARLIEST, Isolation.READ_COMMITTED)
                ends = client.offsets(partitions, LATEST, Isolation.READ_COMMITTED)
        except LogError as error:
            raise AuditFailed(f"{self.name}: {error}") from None
        return [
            _Records(
                self.settings,
                Slice(topic, where.partition, start, min(start + self.piece_rows, ends[where])),
                self.on_bad_batch,
            )
            for where in partitions
            for start in range(starts[where], ends[where], self.piece_rows)
        ]


def _stored(name: str) -> str:
    return _HEADERS if name.startswith(_HEADER) else name


def _column(batch: Any, name: str) -> Any:
    if not name.startswith(_HEADER):
        return batch.column(name)
    return _last_headers(batch.column(_HEADERS), name.removeprefix(_HEADER))


def _last_headers(headers: Any, name: str) -> Any:
    """The value of each record's last header of this name, as in Kafka's own clients; null for a record without one."""
    flat = headers.flatten()
    is_named = pc.equal(flat.field("key"), name)
    owners = pc.list_parent_indices(headers).filter(is_named)
    values = flat.field("value").filter(is_named)
    positions = pa.array(range(len(owners)), pa.int64())
    last = pa.table({"owner": owners, "at": positions}).group_by("owner").aggregate([("at", "max")])
    at = pc.index_in(pa.array(range(len(headers)), owners.type), value_set=last["owner"])
    return values.take(last["at_max"].combine_chunks().take(at))
