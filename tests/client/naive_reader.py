"""The rows of the log read the slow and obvious way, record after record: what the real reader is held against."""

from datetime import UTC, datetime, timedelta
from typing import Any

from read_committed import shown
from semel.client import Slice

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def naive_rows(records: bytes, aborted: list[tuple[int, int]], wanted: Slice) -> list[dict[str, Any]]:
    """What a consumer is shown of these batches inside the slice; `aborted` is (producer id, first offset)."""
    rows = []
    for batch in shown(records, aborted):
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
