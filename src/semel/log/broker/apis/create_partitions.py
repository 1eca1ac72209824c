"""CreatePartitions (37), versions 0 to 3: gives topics more partitions; the request names the new total.

A manual assignment is accepted if it has one entry for each new partition, on this broker.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.apis.create_topics import check_assignments
from semel.log.broker.apis.lookup import repeated
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_TOPIC
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import CREATE_PARTITIONS

API: Final = Api(CREATE_PARTITIONS, (0, 3), rights=(ALTER_TOPIC,), standby=Here.NOT_CONTROLLER)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.create_partitions.CreatePartitionsRequest
) -> Steps[kafka.create_partitions.CreatePartitionsResponse]:
    api = kafka.create_partitions
    twice = yield from repeated(item.name for item in request.topics)
    results = []
    for name, item in {item.name: item for item in request.topics}.items():
        refusal = attempted(_grow, broker, exchange, item, name in twice, request.validate_only)
        results.append(
            api.CreatePartitionsTopicResult(name=name, error_code=error_of(refusal), error_message=message_of(refusal))
        )
        yield APPEND_PIECES
    return api.CreatePartitionsResponse(results=results)


def _grow(
    broker: Serving,
    exchange: Exchange,
    item: kafka.create_partitions.CreatePartitionsTopic,
    twice: bool,
    validate_only: bool,
) -> None:
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
    broker.guard.check(exchange, ALTER_TOPIC, item.name)
    entry = broker.log.state.catalog.decide_partitions(item.name, item.count)
    if item.assignments is not None:
        more = item.count - broker.log.state.catalog.existing(item.name).partition_count
        if len(item.assignments) != more:
            message = f"{more} more partitions and {len(item.assignments)} assignments"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        check_assignments(broker, (assignment.broker_ids for assignment in item.assignments))
    if not validate_only:
        broker.runtime.commit(entry)
        broker.guard.note_administration(exchange, "partitions_added", item.name, partitions=entry.partition_count)
