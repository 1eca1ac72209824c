"""ElectLeaders (43), versions 0 to 2: there is nothing to elect, because the active broker leads every partition.

As in Apache Kafka, a client that asks for all partitions is told all topics, and of none of their partitions: it would
be told of those that had another leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import ELECT_LEADERS

API: Final = Api(ELECT_LEADERS, (0, 2), rights=(ALTER_CLUSTER,), standby=Here.NOT_CONTROLLER)

# Kafka's numbers for the types of elections. Version 0 has no type, and elects the preferred ones.
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.elect_leaders.ElectLeadersRequest
) -> Steps[kafka.elect_leaders.ElectLeadersResponse]:
    api = kafka.elect_leaders
    refusal = attempted(_check, broker, exchange, request.election_type)
    topics: Iterable[tuple[str, Iterable[int]]] = []
    if request.topic_partitions is not None:
        topics = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    elif not refusal:
        topics = [(topic.name, ()) for topic in broker.log.state.catalog]
    results = []
    for name, indexes in topics:
        partitions = []
        for index in indexes:
            outcome = refusal or attempted(_elect, broker, name, index)
            partitions.append(
                api.PartitionResult(partition_id=index, error_code=error_of(outcome), error_message=message_of(outcome))
            )
            yield 1
        results.append(api.ReplicaElectionResult(topic=name, partition_result=partitions))
        yield 1
    return api.ElectLeadersResponse(error_code=error_of(refusal), replica_election_results=results)


def _check(broker: Serving, exchange: Exchange, election_type: int) -> None:
    broker.guard.check(exchange, ALTER_CLUSTER)
    if election_type not in (_PREFERRED, _UNCLEAN):
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no election of type {election_type}")


def _elect(broker: Serving, topic_name: str, index: int) -> None:
    partition_of(broker, topic_name, index)
    raise Refused(ErrorCode.ELECTION_NOT_NEEDED, "the active broker leads it")
