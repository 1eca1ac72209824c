"""The rows of the log read the slow and obvious way, record after record: what the real reader is held against."""

from datetime import UTC, datetime, timedelta
from typing import Any

from semel.spark.log import Slice
from semel.wire.records import decode_batches

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ABORT = b"\x00\x00\x00\x00"


def naive_rows(records: bytes, aborted: list[tuple[int, int]], wanted: Slice) -> list[dict[str, Any]]:
    """What a consumer is shown of these batches inside the slice; `aborted` is (producer id, first offset)."""
    rows = []
    open_aborted: set[int] = set()
    for batch in decode_batches(records):
        last_offset = batch.base_offset + batch.last_offset_delta
        for producer_id, first_offset in list(aborted):
            if first_offset <= last_offset:
                open_aborted.add(producer_id)
                aborted = [one for one in aborted if one != (producer_id, first_offset)]
        if batch.is_control:
            if batch.records[0].key == ABORT:
                open_aborted.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in open_aborted:
            continue
        for record in batch.records:
            if not wanted.start <= record.offset < wanted.end:
                continue
            is_numbered = batch.producer_id >= 0 and batch.base_sequence >= 0
            sequence = (batch.base_sequence + record.offset - batch.base_offset) % 2**31
            rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": wanted.topic.name,
                    "partition": wanted.partition,
                    "offset": record.offset,
                    "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms),
                    "timestampType": batch.attributes >> 3 & 1,
                    "headers": [{"key": name, "value": value} for name, value in record.headers],
                    "producer_id": batch.producer_id if is_numbered else None,
                    "producer_epoch": batch.producer_epoch if is_numbered else None,
                    "sequence": sequence if is_numbered else None,
                }
            )
    return rows
