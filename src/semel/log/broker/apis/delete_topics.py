"""DeleteTopics (20), versions 1 to 6: deletes topics by name or, since version 6, by id.

A topic that a request names twice, by name or by id, is refused: the second deletion would find no topic, and would
tell the client that the topic never existed.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.apis.lookup import repeated, topic_identified
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DELETE_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.topics import Topic
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import DELETE_TOPICS

API: Final = Api(
    DELETE_TOPICS, (1, 6), rights=(DELETE_TOPIC, DELETE_CLUSTER, DESCRIBE_TOPIC), standby=Here.NOT_CONTROLLER
)

_BY_ID_FROM: Final = 6

# The name and the id by which a request names a topic.
Handle = tuple[str | None, bytes]


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.delete_topics.DeleteTopicsRequest
) -> Steps[kafka.delete_topics.DeleteTopicsResponse]:
    handles: list[Handle]
    if exchange.version >= _BY_ID_FROM:
        handles = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        handles = [(name, NO_ID) for name in request.topic_names]
    twice = (yield from repeated(handles)) | (yield from repeated(_name_of(broker, handle) for handle in handles))
    responses = []
    for name, topic_id in dict.fromkeys(handles):
        topic = yield from attempted_in_steps(_delete(broker, exchange, name, topic_id, twice))
        if not isinstance(topic, Refused):
            name, topic_id = topic.name, topic.topic_id
        responses.append(
            kafka.delete_topics.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error_of(topic), error_message=message_of(topic)
            )
        )
        # The deletion looks for the topic in every group and every open transaction.
        yield APPEND_PIECES + len(broker.log.state.groups) + broker.log.state.transactions.open_count
        yield from broker.log.state.groups.free_waste()
    return kafka.delete_topics.DeleteTopicsResponse(responses=responses)


def _name_of(broker: Serving, handle: Handle) -> str | Handle:
    """The same value for the name and the id of one topic."""
    topic = broker.log.state.catalog.identified(handle[1])
    return handle[0] or (topic.name if topic is not None else handle)


def _delete(
    broker: Serving, exchange: Exchange, name: str | None, topic_id: bytes, twice: set[str | Handle]
) -> Steps[Topic]:
    if (name is None) == (topic_id == NO_ID):
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic is deleted by its name or by its id: give one of them")
    if (name, topic_id) in twice:
        raise Refused(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
    log = broker.log
    topic = _topic(broker, exchange, name, topic_id)
    # Only a client that may see the topic is told that this name and this id are the same.
    if topic.name in twice:
        raise Refused(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
    yield from log.state.groups.take_readers(topic.number)
    # It may have been deleted since, or deleted and recreated.
    topic = _topic(broker, exchange, name, topic_id)
    broker.runtime.commit(
        log.state.catalog.decide_delete(topic.name, log.state.producer_ids.block_count, broker.clock.now_ms())
    )
    broker.guard.note_administration(exchange, "topic_deleted", topic.name)
    return topic


def _topic(broker: Serving, exchange: Exchange, name: str | None, topic_id: bytes) -> Topic:
    """The topic, if the client may see it and delete it."""
    guard = broker.guard
    may_delete_all = guard.sees(exchange, DELETE_CLUSTER)
    topic = topic_identified(broker, topic_id) if name is None else broker.log.state.catalog.named(name)
    known_as = name if topic is None else topic.name
    if not may_delete_all and known_as is not None:
        guard.check(exchange, DESCRIBE_TOPIC, known_as)
    if topic is None:
        topic = broker.log.state.catalog.existing(name or "")
    if not may_delete_all:
        guard.check(exchange, DELETE_TOPIC, topic.name)
    return topic
