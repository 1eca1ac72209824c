"""CreateTopics (19), versions 2 to 7: creates topics; each is created or refused on its own.

-1 partitions means the broker's default, and -1 replicas means one, the only number that is possible. A manual
assignment is accepted if it puts every partition on this broker. Since version 5 the answer shows the configurations of
the new topic. As in Apache Kafka, a name that occurs twice in one request is refused, and answered once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted
from semel.log.broker.apis.configurations import check_count, of_topic
from semel.log.broker.apis.lookup import repeated
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from semel.log.broker.serving import Serving
from semel.log.core.entries import TopicCreated
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import CREATE_TOPICS

API: Final = Api(
    CREATE_TOPICS, (2, 7), rights=(CREATE_TOPIC, CREATE_CLUSTER, DESCRIBE_TOPIC_CONFIGS), standby=Here.NOT_CONTROLLER
)

_DEFAULT: Final = -1


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.create_topics.CreateTopicsRequest
) -> Steps[kafka.create_topics.CreateTopicsResponse]:
    twice = yield from repeated(item.name for item in request.topics)
    topics = []
    for name, item in {item.name: item for item in request.topics}.items():
        outcome = attempted(_create, broker, exchange, item, name in twice, request.validate_only)
        if isinstance(outcome, Refused):
            outcome = kafka.create_topics.CreatableTopicResult(
                name=name, error_code=outcome.error, error_message=outcome.message
            )
        topics.append(outcome)
        yield 5 * APPEND_PIECES
    return kafka.create_topics.CreateTopicsResponse(topics=topics)


def _create(
    broker: Serving, exchange: Exchange, item: kafka.create_topics.CreatableTopic, twice: bool, validate_only: bool
) -> kafka.create_topics.CreatableTopicResult:
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, f"topic '{item.name}' is named more than once")
    if not broker.guard.sees(exchange, CREATE_CLUSTER):
        broker.guard.check(exchange, CREATE_TOPIC, item.name)
    check_count(item.configs)
    unset = [config.name for config in item.configs if config.value is None]
    if unset:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{unset[0]} has no value")
    topic = create(
        broker,
        item.name,
        _partition_count(broker, item),
        {config.name: config.value for config in item.configs},
        replication_factor=item.replication_factor,
        validate_only=validate_only,
    )
    if not validate_only:
        broker.guard.note_administration(exchange, "topic_created", item.name, partitions=topic.partition_count)
    result = kafka.create_topics.CreatableTopicResult(
        name=item.name, topic_id=NO_ID if validate_only else topic.topic_id
    )
    if not broker.guard.sees(exchange, DESCRIBE_TOPIC_CONFIGS, item.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = topic.partition_count
    result.replication_factor = 1
    result.configs = [configuration.created() for configuration in of_topic(topic.configs)]
    return result


def create(
    broker: Serving,
    name: str,
    partition_count: int,
    configs: Mapping[str, str | None],
    *,
    replication_factor: int = _DEFAULT,
    validate_only: bool = False,
) -> TopicCreated:
    """Create a topic, or only check whether that is allowed. It is durable once the present `log.end` is."""
    entry = broker.log.state.catalog.decide_create(
        name, partition_count, configs, uuid.uuid4().bytes, broker.clock.now_ms(), replication_factor=replication_factor
    )
    if not validate_only:
        broker.runtime.commit(entry)
    return entry


def _partition_count(broker: Serving, item: kafka.create_topics.CreatableTopic) -> int:
    if not item.assignments:
        return broker.partitions_default if item.num_partitions == _DEFAULT else item.num_partitions
    if item.num_partitions != _DEFAULT or item.replication_factor != _DEFAULT:
        raise Refused(ErrorCode.INVALID_REQUEST, "with a manual assignment, both numbers must be -1")
    count = len(item.assignments)
    if {assignment.partition_index for assignment in item.assignments} != set(range(count)):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions must be numbered 0, 1, 2 and so on")
    check_assignments(broker, (assignment.broker_ids for assignment in item.assignments))
    return count


def check_assignments(broker: Serving, assignments: Iterable[Sequence[int]]) -> None:
    """Refuse partitions that are not assigned to this broker alone."""
    for broker_ids in assignments:
        if tuple(broker_ids) != (broker.role.node_id,):
            message = f"brokers {list(broker_ids)}: there is one broker, number {broker.role.node_id}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
