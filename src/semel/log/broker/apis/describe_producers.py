"""DescribeProducers (61), version 0: the producers of a partition, with their last sequence numbers.

Producers that `semel.wire.sequences` has forgotten after a long silence are not shown. The answer has a bounded number
of producers: in each partition those that wrote last. Each comes with the offset where its open transaction begins, if
it has one.
"""

from collections.abc import Iterator
from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted_in_steps
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.topics import check_name
from semel.wire.batch import NO_SEQUENCE
from semel.wire.sequences import epoch_of, last_heard_ms, window_of
from semel.wire.steps import Steps, each
from semel.wire.versions import DESCRIBE_PRODUCERS

API: Final = Api(DESCRIBE_PRODUCERS, (0, 0), rights=(READ_TOPIC,), standby=Here.NOT_LEADER)

NO_TRANSACTION: Final = -1
# There is one coordinator, and it has no epochs.
NO_COORDINATOR_EPOCH: Final = -1


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    places = iter(range(broker.limits.producers_per_answer_max))
    # Each is answered once: otherwise a small request could have an answer of any size.
    topics_by_name = {topic.name: topic for topic in request.topics}
    topics = []
    for topic in topics_by_name.values():
        partitions = []
        for index in dict.fromkeys(topic.partition_indexes):
            fields = yield from attempted_in_steps(_describe(broker, exchange, topic.name, index, places))
            partitions.append({"partition_index": index, "active_producers": [], **fields})
            yield 1
        topics.append({"name": topic.name, "partitions": partitions})
        yield 1
    return {"topics": topics}


def _describe(broker: Serving, exchange: Exchange, topic_name: str, index: int, places: Iterator[int]) -> Steps[Fields]:
    broker.guard.check(exchange, READ_TOPIC, topic_name)
    check_name(topic_name)
    _, partition = partition_of(broker, topic_name, index)
    transactions = partition.state.open_transactions
    # All producers to show are collected in one step, because others may write between two steps.
    latest = [one for one, _ in zip(partition.state.producers.latest(), places, strict=False)]
    return {
        "active_producers": (
            yield from each(latest, lambda one: _producer(*one, transactions.get(one[0], NO_TRANSACTION)), pieces=3)
        )
    }


def _producer(producer_id: int, state: bytes, begun_at: int) -> Fields:
    window = window_of(state)
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch_of(state),
        # A marker that raised the epoch has removed the sequence numbers.
        "last_sequence": window[-1].last_sequence if window else NO_SEQUENCE,
        "last_timestamp": last_heard_ms(state),
        "coordinator_epoch": NO_COORDINATOR_EPOCH,
        "current_txn_start_offset": begun_at,
    }
