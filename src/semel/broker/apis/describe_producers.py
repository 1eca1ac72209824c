"""DescribeProducers (61), version 0: who has written to a partition with numbered batches, and how far they got.

`semel.core.producers` forgets those that were silent for long, and so does this answer. It shows a bounded number,
those of each partition that were heard last first, each with the place where its open transaction begins, if it has
one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from semel.broker.apis.answered import Fields, answered, attempted
from semel.broker.apis.lookup import partition_of
from semel.core.batch import NO_SEQUENCE
from semel.core.producers import epoch_of, last_heard_ms, window_of
from semel.core.topics import check_name

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange

NO_TRANSACTION: Final = -1
# There is one coordinator, and it has no epochs.
NO_COORDINATOR_EPOCH: Final = -1


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    places = iter(range(broker.limits.producers_per_answer_max))
    # Once each, or a small request could have an answer of any size.
    wanted = {topic.name: topic for topic in request.topics}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "active_producers": [],
                        **attempted(_describe, broker, topic.name, index, places),
                    }
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            }
            for topic in wanted.values()
        ]
    }


def _describe(broker: "Broker", topic_name: str, index: int, places: Iterator[int]) -> Fields:
    check_name(topic_name)
    _, partition = partition_of(broker, topic_name, index)
    heard = partition.state.producers.snapshot().items()
    begun = partition.state.open_transactions
    return {
        "active_producers": [
            _producer(producer_id, state, begun.get(producer_id, NO_TRANSACTION))
            for (producer_id, state), _ in zip(reversed(heard), places, strict=False)
        ]
    }


def _producer(producer_id: int, state: bytes, begun_at: int) -> Fields:
    window = window_of(state)
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch_of(state),
        # A marker that raised the epoch has left none.
        "last_sequence": window[-1].last_sequence if window else NO_SEQUENCE,
        "last_timestamp": last_heard_ms(state),
        "coordinator_epoch": NO_COORDINATOR_EPOCH,
        "current_txn_start_offset": begun_at,
    }
