"""The windows of producers, for an operator's tools: the batches that each partition would recognise as duplicates.
Kafka's protocol has no request for them. This file must never change anything, and answers a bounded number of
producers, those that wrote last.
"""

import json
from typing import Any, Final

from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.broker import Broker
from semel.wire.refusals import Refused
from semel.wire.sequences import epoch_of, last_heard_ms, window_of

# The most partitions in one answer, and the most producers of each. Together they take about a millisecond.
PARTITIONS_MAX: Final = 50
PRODUCERS_MAX: Final = 100


def windows(broker: Broker, topic_name: str, first_partition: int) -> bytes:
    """The windows in up to 50 partitions, from `first_partition` on, as JSON; Refused if there is no such topic."""
    topic = broker.log.state.catalog.existing(topic_name)
    places_left = PRODUCERS_MAX
    rows: list[dict[str, Any]] = []
    for index in range(first_partition, min(first_partition + PARTITIONS_MAX, topic.partition_count)):
        try:
            _, partition = partition_of(broker, topic_name, index)
        except Refused:
            continue
        for producer_id, state in partition.state.producers.latest():
            if not places_left:
                break
            places_left -= 1
            rows.append(_told(index, producer_id, state))
    return json.dumps({"topic": topic_name, "windows": rows}).encode()


def _told(partition: int, producer_id: int, state: bytes) -> dict[str, Any]:
    return {
        "partition": partition,
        "producer_id": producer_id,
        "epoch": epoch_of(state),
        "heard_ms": last_heard_ms(state),
        "batches": [
            {
                "first_sequence": one.first_sequence,
                "last_sequence": one.last_sequence,
                "records": one.record_count,
                "offset": one.base_offset,
            }
            for one in window_of(state)
        ],
    }
