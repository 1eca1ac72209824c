"""The committed records of a slice of the source, batch by batch, in a form that another log accepts. A batch with all
its records is copied as it is, compressed and unopened. If compaction left holes, or the broker replaced the
timestamps, the batch is built again, with the same bytes for each record.
"""

from collections.abc import Iterator
from typing import NamedTuple

from semel.client import CorruptRecords, Isolation, LogClient, Slice
from semel.client.aborted import committed_batches
from semel.client.transaction import Records
from semel.wire.batch import APPEND_TIME_BIT, CODEC_MASK, HEADER_BYTES, HORIZON_BIT, BatchHeader
from semel.wire.errors import ProtocolError
from semel.wire.record_bodies import RecordBody, payload_of, record_bodies


class Piece(NamedTuple):
    """A batch of committed records."""

    header: BatchHeader
    batch: memoryview
    # Records before this offset are left out.
    start: int

    @property
    def is_plain(self) -> bool:
        """Whether all of its records are wanted, have consecutive offsets, and have their own timestamps."""
        header = self.header
        return (
            header.record_count == header.last_offset_delta + 1
            and header.base_offset >= self.start
            and not header.attributes & (APPEND_TIME_BIT | HORIZON_BIT)
        )

    @property
    def payload(self) -> memoryview:
        return self.batch[HEADER_BYTES:]

    def bodies(self) -> list[RecordBody]:
        """The wanted records."""
        return [body for body in record_bodies(self.batch, self.header) if body.offset >= self.start]

    def records(self) -> Records | None:
        """The batch for another log; None if no record is left."""
        header = self.header
        codec = header.attributes & CODEC_MASK
        if self.is_plain:
            return Records(header.record_count, self.payload, header.base_timestamp, header.max_timestamp, codec)
        bodies = self.bodies()
        if not bodies:
            return None
        base_ms = bodies[0].timestamp_ms
        newest_ms = max(body.timestamp_ms for body in bodies)
        return Records(len(bodies), payload_of(bodies, base_ms, codec), base_ms, newest_ms, codec)


class Fetch(NamedTuple):
    """The content of one answer of the source, and the offset after it."""

    pieces: list[Piece]
    next_offset: int


def fetches(client: LogClient, wanted: Slice, *, may_lack_its_end: bool) -> Iterator[Fetch]:
    """The committed records of a slice, answer by answer. The slice ends between two batches."""
    for fetched in client.fetches(wanted, Isolation.READ_COMMITTED, may_lack_its_end=may_lack_its_end):
        try:
            batches = [
                Piece(header, fetched.records[at : at + header.batch_bytes], wanted.start)
                for at, header in committed_batches(fetched)
                if header.record_count and wanted.start < header.next_offset and header.base_offset < wanted.end
            ]
        except ProtocolError as error:
            where = f"partition {wanted.topic_partition} before offset {fetched.next_offset}"
            raise CorruptRecords(f"{where}: {error}") from None
        yield Fetch(batches, min(fetched.next_offset, wanted.end))


def pieces(client: LogClient, wanted: Slice, *, may_lack_its_end: bool) -> Iterator[Piece]:
    """The committed records of a slice."""
    for fetch in fetches(client, wanted, may_lack_its_end=may_lack_its_end):
        yield from fetch.pieces
