"""DescribeProducers (61), version 0: the producers of a partition, with their last sequence numbers.

Producers that `semel.wire.sequences` has forgotten after a long silence are not shown. The answer has a bounded number
of producers: in each partition those that wrote last. Each comes with the offset where its open transaction begins, if
it has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.topics import check_name
from semel.wire import kafka
from semel.wire.batch import NO_SEQUENCE
from semel.wire.refusals import Refused
from semel.wire.sequences import epoch_of, last_heard_ms, window_of
from semel.wire.steps import Steps, each
from semel.wire.versions import DESCRIBE_PRODUCERS

API: Final = Api(DESCRIBE_PRODUCERS, (0, 0), rights=(READ_TOPIC,), standby=Here.NOT_LEADER)

NO_TRANSACTION: Final = -1
# There is one coordinator, and it has no epochs.
NO_COORDINATOR_EPOCH: Final = -1


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_producers.DescribeProducersRequest
) -> Steps[kafka.describe_producers.DescribeProducersResponse]:
    api = kafka.describe_producers
    places = iter(range(broker.limits.producers_per_answer_max))
    # Each is answered once: otherwise a small request could have an answer of any size.
    topics_by_name = {topic.name: topic for topic in request.topics}
    topics = []
    for topic in topics_by_name.values():
        partitions = []
        for index in dict.fromkeys(topic.partition_indexes):
            producers = yield from attempted_in_steps(_describe(broker, exchange, topic.name, index, places))
            partitions.append(
                api.PartitionResponse(
                    partition_index=index,
                    error_code=error_of(producers),
                    error_message=message_of(producers),
                    active_producers=() if isinstance(producers, Refused) else producers,
                )
            )
            yield 1
        topics.append(api.TopicResponse(name=topic.name, partitions=partitions))
        yield 1
    return api.DescribeProducersResponse(topics=topics)


def _describe(
    broker: Serving, exchange: Exchange, topic_name: str, index: int, places: Iterator[int]
) -> Steps[list[kafka.describe_producers.ProducerState]]:
    broker.guard.check(exchange, READ_TOPIC, topic_name)
    check_name(topic_name)
    _, partition = partition_of(broker, topic_name, index)
    transactions = partition.state.open_transactions
    # All producers to show are collected in one step, because others may write between two steps.
    latest = [one for one, _ in zip(partition.state.producers.latest(), places, strict=False)]
    return (yield from each(latest, lambda one: _producer(*one, transactions.get(one[0], NO_TRANSACTION)), pieces=3))


def _producer(producer_id: int, state: bytes, begun_at: int) -> kafka.describe_producers.ProducerState:
    window = window_of(state)
    return kafka.describe_producers.ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch_of(state),
        # A marker that raised the epoch has removed the sequence numbers.
        last_sequence=window[-1].last_sequence if window else NO_SEQUENCE,
        last_timestamp=last_heard_ms(state),
        coordinator_epoch=NO_COORDINATOR_EPOCH,
        current_txn_start_offset=begun_at,
    )
