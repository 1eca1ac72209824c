"""Produce (0), versions 3 to 13: appends record batches to partitions.

Each partition's batch is judged and appended on its own; if one is refused, the others are still appended. With
acks=all the answer is sent when every batch in it is durable. That holds for a duplicate as well, because its original
may be on its way to the disk at this moment. With acks=1 the answer is sent at once. With acks=0 there is no answer,
and the broker can report an error only by closing the connection. Versions below 3 are announced for old versions of
librdkafka (KAFKA-18659), and close the connection when a client uses them, as in Apache Kafka 4.
"""

from functools import lru_cache
from typing import Final

from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.compaction.records import KeylessRecords
from semel.log.core.access import Principal
from semel.log.core.batch_checks import ForeignProducer, Sender, Who, check_records, check_sent
from semel.log.core.quotas import PRODUCED
from semel.log.core.record_walk import BadRecord
from semel.log.core.shares import NoShareLeft
from semel.log.core.topics import Topic
from semel.log.storage.partition_log import PartitionLog
from semel.wire.batch import TRANSACTIONAL_BIT, BatchHeader, says_transactional
from semel.wire.errors import ErrorCode
from semel.wire.produce import (
    ProducePartitionAnswer,
    ProduceTopic,
    ProduceTopicAnswer,
    decode_request_in_steps,
    encode_response_in_steps,
)
from semel.wire.refusals import Refused
from semel.wire.sequences import ACCEPTED, DUPLICATE, GAP
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import PRODUCE

# Produce is announced from 0 because librdkafka otherwise silently turns compression off; versions below 3 have the old
# message formats. Nothing is answered to a Produce with acks=0, so there a standby closes the connection.
API: Final = Api(
    PRODUCE,
    (0, 13),
    rights=(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
    standby=Here.NOT_LEADER,
    served_from=3,
    may_be_large=True,
)

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
_ZSTD_FROM: Final = 7
# Checking this many bytes, and writing them twice, counts as one piece of work, besides the rest of an append.
_BYTES_PER_PIECE: Final = 4096
# The first version whose clients know TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 11
# The first version in which sending a batch adds its partition to the transaction.
_JOINS_FROM: Final = 12
# The `Sender` is the same for most requests of a client, so it is cached; this is the number of addresses in the cache.
_SENDERS_KEPT: Final = 1024


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    version = exchange.version
    request = yield from decode_request_in_steps(body, version)
    acks = request.acks
    # Bytes that are not a batch are refused later.
    is_transactional = any(
        records is not None and says_transactional(records)
        for topic in request.topics
        for _, records in topic.partitions
    )
    sender = _sender(exchange.address, version, exchange.principal if broker.guard.in_force else None)
    if request.transactional_id is not None:
        sender = _named(broker, exchange, sender, request.transactional_id)
    answers: list[ProduceTopicAnswer] = []
    is_refused = False
    for topic in request.topics:
        of_topic = yield from _produce_to(
            broker, exchange, topic, acks, sender, request.transactional_id, is_transactional=is_transactional
        )
        answers.append(of_topic)
        for answer_of_partition in of_topic[2]:
            if answer_of_partition.error_code:
                is_refused = True
    # Not together with the answer, because acks=0 has none, and those batches must become durable as well.
    broker.pump.sync_soon()
    throttle_ms = exchange.throttle(PRODUCED, exchange.header_bytes + len(body))
    if acks == ACKS_NONE:
        if is_refused:
            exchange.reply_by_hanging_up()
        else:
            exchange.reply_nothing()
        return
    # Batches of a transaction always wait: otherwise, after a takeover that lost some, EndTxn would commit without
    # them.
    waits = acks == ACKS_ALL or request.transactional_id is not None
    answer = yield from encode_response_in_steps(version, exchange.correlation_id, answers, throttle_ms)
    exchange.reply((answer,), after=broker.log.end if waits else 0, is_to_be_proved=is_refused)


def _produce_to(
    broker: Serving,
    exchange: Exchange,
    of_topic: ProduceTopic,
    acks: int,
    sender: Sender,
    transactional_id: str | None,
    *,
    is_transactional: bool,
) -> Steps[ProduceTopicAnswer]:
    """Append the batches of a request. If one of them is transactional, the whole request is."""
    name, topic_id, partitions = of_topic
    answers: list[ProducePartitionAnswer] = []
    for index, records in partitions:
        try:
            if is_transactional:
                _check_owner(broker, exchange, transactional_id)
            # The topic may have been deleted since the last step.
            topic = _topic(broker, exchange, name, topic_id, acks)
            partition = broker.log.state.partitions.at(topic.number, index)
            if partition is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has no partition {index}")
            if not records:
                raise Refused(ErrorCode.INVALID_RECORD, "there is no record batch for this partition")
            header = check_sent(records, topic.parsed.max_message_bytes, sender)
            header, earliest_ms = yield from check_records(header, records)
            if topic.parsed.is_compacted:
                yield from broker.key_checks.check(records, header)
            # Both may take several steps.
            if broker.log.state.catalog.numbered(topic.number) is None:
                message = f"topic '{topic.name}' has just been deleted"
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            answers.append(_append(broker, topic, partition, header, records, sender, earliest_ms))
        except BadRecord as refused:
            broker.metrics.refused_batches += 1
            errors = [(refused.place, refused.what)]
            answers.append(_refusal(index, refused.error, refused.message)._replace(record_errors=errors))
        except KeylessRecords as refused:
            broker.metrics.refused_batches += 1
            errors = [(place, "a record without a key") for place in refused.places]
            answers.append(_refusal(index, refused.error, refused.message)._replace(record_errors=errors))
        except Refused as refused:
            broker.metrics.refused_batches += 1
            if isinstance(refused, ForeignProducer):
                broker.guard.note_foreign_id(exchange, refused.producer_id)
            if isinstance(refused, NoShareLeft):
                broker.runtime.producer_refused(refused)
            answers.append(_refusal(index, refused.error, refused.message))
        except OSError as error:
            broker.pump.write_refused(error)
            answers.append(
                _refusal(index, ErrorCode.KAFKA_STORAGE_ERROR, f"the disk refused the write: {error.strerror}")
            )
        yield APPEND_PIECES if records is None else APPEND_PIECES + len(records) // _BYTES_PER_PIECE
    return name, topic_id, answers


@lru_cache(_SENDERS_KEPT)
def _sender(address: str, version: int, principal: Principal | None) -> Sender:
    return Sender(
        address,
        joins=version >= _JOINS_FROM,
        knows_abortable=version >= _ABORTABLE_FROM,
        knows_zstd=version >= _ZSTD_FROM,
        who=Who(None, None if principal is None else str(principal)),
    )


def _named(broker: Serving, exchange: Exchange, sender: Sender, transactional_id: str) -> Sender:
    """The sender with the transactional id that its request names, if it may write with that."""
    assert sender.who is not None
    if not broker.guard.sees(exchange, WRITE_TRANSACTIONAL_ID, transactional_id):
        return sender
    return sender._replace(who=sender.who._replace(transactional_id=transactional_id))


def _check_owner(broker: Serving, exchange: Exchange, transactional_id: str | None) -> None:
    if transactional_id is None:
        message = "a batch of a transaction came without a transactional id"
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    broker.guard.check(exchange, WRITE_TRANSACTIONAL_ID, transactional_id)


def _topic(broker: Serving, exchange: Exchange, name: str | None, topic_id: bytes | None, acks: int) -> Topic:
    """The topic to write to; Refused if there is none, or the client may not write to it."""
    catalog = broker.log.state.catalog
    topic = catalog.named(name or "") if topic_id is None else catalog.identified(topic_id)
    if topic is None and topic_id is not None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    broker.guard.check(exchange, WRITE_TOPIC, name or "" if topic is None else topic.name)
    if acks not in _ACKS:
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is none of -1, 0 and 1")
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    return topic


def _append(
    broker: Serving,
    topic: Topic,
    partition: PartitionLog,
    header: BatchHeader,
    records: memoryview,
    sender: Sender,
    earliest_ms: int | None,
) -> ProducePartitionAnswer:
    """The answer to a batch that passed the checks of its bytes: it is appended if it is new."""
    metrics = broker.metrics
    now_ms = broker.clock.now_ms()
    verdict = broker.log.append(topic, partition, header, records, now_ms, sender, earliest_ms)
    outcome, base_offset, timestamp_ms, error, message, _ = verdict
    if outcome is ACCEPTED:
        metrics.accepted_batches += 1
        metrics.accepted_records += header.record_count
        if header.attributes & TRANSACTIONAL_BIT:
            broker.transactions.note_grown(header.producer_id)
    elif outcome is DUPLICATE:
        metrics.duplicate_batches += 1
    elif outcome is GAP:
        metrics.gap_batches += 1
    else:
        metrics.fenced_batches += 1
    if broker.decisions.is_watched:
        broker.decisions.tell(topic.name, partition.index, header, verdict, now_ms)
    if error:
        return _refusal(partition.index, error, message)
    return ProducePartitionAnswer(partition.index, 0, base_offset, timestamp_ms, partition.state.log_start)


def _refusal(index: int, error: int, message: str | None) -> ProducePartitionAnswer:
    return ProducePartitionAnswer(index, error, -1, error_message=message)
