"""What a share consumer says about records that it holds, in ShareAcknowledge and in ShareFetch: each partition by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.apis.lookup import topic_identified
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.broker.share_sessions import Place, ShareSession
from semel.log.core.entries import PartitionName
from semel.log.core.groups.share_partition import REJECT, RENEW, Ack, check_acks
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import INVALID_REQUEST, Refused
from semel.wire.steps import Steps

# The first version that knows how to renew a lock.
RENEWS_FROM: Final = 2
# Ranges, or words, that are looked at for one piece of work.
_RANGES_PER_PIECE: Final = 10
_WORDS_PER_PIECE: Final = 100


def acknowledged(
    broker: Serving,
    exchange: Exchange,
    session: ShareSession,
    topics: Iterable[kafka.share_acknowledge.AcknowledgeTopic | kafka.share_fetch.FetchTopic],
    *,
    renews: bool,
) -> Steps[dict[Place, Refused | None]]:
    """The outcome for each partition of a request."""
    outcomes: dict[Place, Refused | None] = {}
    acks: dict[PartitionName, list[Ack]] = {}
    places: dict[PartitionName, Place] = {}
    word_max = RENEW if exchange.version >= RENEWS_FROM else REJECT
    for topic in topics:
        for partition in topic.partitions:
            place = topic.topic_id, partition.partition_index
            valid: list[Ack] = []
            pieces = 0
            try:
                topic_identified(broker, topic.topic_id)
                said = (
                    Ack(one.first_offset, one.last_offset, one.acknowledge_types)
                    for one in partition.acknowledgement_batches
                )
                for count, ack in enumerate(check_acks(said, renews=renews, word_max=word_max)):
                    valid.append(ack)
                    pieces += len(ack.words) // _WORDS_PER_PIECE
                    if pieces or count % _RANGES_PER_PIECE == 0:
                        yield 1 + pieces
                        pieces = 0
                name = name_of(broker, exchange, place)
                if place in outcomes:
                    acks.pop(name, None)
                    raise Refused(INVALID_REQUEST, "the request names the partition twice")
                broker.share_groups.existing(session.name.group)
                if valid:
                    # As in Apache Kafka, the answer does not name a partition without acknowledgements.
                    outcomes[place] = None
                    acks[name], places[name] = valid, place
            except Refused as refused:
                outcomes[place] = refused.with_traceback(None)
            yield 2
    for name, refusal in (yield from broker.share_groups.acknowledge(session, acks)).items():
        outcomes[places[name]] = refusal
    return outcomes


def name_of(broker: Serving, exchange: Exchange, place: Place) -> PartitionName:
    """The partition at this place; Refused if the client may not read it, or there is none."""
    topic = topic_identified(broker, place[0])
    broker.guard.check(exchange, READ_TOPIC, topic.name)
    if not 0 <= place[1] < topic.partition_count:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has no partition {place[1]}")
    return PartitionName(topic.number, place[1])


def by_topic(places: Iterable[Place]) -> Steps[dict[bytes, list[int]]]:
    """The indexes of these partitions, by the ids of their topics."""
    of_topics: dict[bytes, list[int]] = {}
    for count, (topic_id, index) in enumerate(places):
        of_topics.setdefault(topic_id, []).append(index)
        if count % _RANGES_PER_PIECE == 0:
            yield 1
    return of_topics
