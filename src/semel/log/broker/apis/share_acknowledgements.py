"""What a share consumer says about records that it holds, in ShareAcknowledge and in ShareFetch: each partition by
itself, all of them in one entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.broker.share_sessions import Place, SharerName
from semel.log.core.entries import PartitionName
from semel.log.core.groups.share_partition import REJECT, RENEW, Ack, check_acks
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps

# The first version that knows how to renew a lock.
RENEWS_FROM: Final = 2
# Ranges that are looked at for one piece of work.
_RANGES_PER_PIECE: Final = 10


SaidOfTopic = kafka.share_acknowledge.AcknowledgeTopic | kafka.share_fetch.FetchTopic


def acknowledged(
    broker: Serving,
    exchange: Exchange,
    who: SharerName,
    topics: Iterable[kafka.share_acknowledge.AcknowledgeTopic | kafka.share_fetch.FetchTopic],
    *,
    renews: bool,
) -> Steps[dict[Place, Refused | None]]:
    """The outcome for each partition of a request."""
    outcomes: dict[Place, Refused | None] = {}
    acks: dict[PartitionName, list[Ack]] = {}
    places: dict[PartitionName, Place] = {}
    for topic in topics:
        for partition in topic.partitions:
            place = topic.topic_id, partition.partition_index
            try:
                name = name_of(broker, exchange, place)
                machine = broker.share_groups.existing(who.group)
                known = machine.partition(name)
                start = 0 if known is None else known.start
                valid: list[Ack] = []
                said = (
                    Ack(one.first_offset, one.last_offset, one.acknowledge_types)
                    for one in partition.acknowledgement_batches
                )
                word_max = RENEW if exchange.version >= RENEWS_FROM else REJECT
                for count, ack in enumerate(check_acks(said, renews=renews, word_max=word_max)):
                    if ack.last >= start:
                        valid.append(ack)
                    if count % _RANGES_PER_PIECE == 0:
                        yield 1 + len(ack.words) // 100
                outcomes[place] = None
                if valid:
                    acks[name], places[name] = valid, place
            except Refused as refused:
                outcomes[place] = refused.with_traceback(None)
            yield 2
    for name, refusal in broker.share_groups.acknowledge(who, acks).items() if acks else ():
        outcomes[places[name]] = refusal
    return outcomes


def name_of(broker: Serving, exchange: Exchange, place: Place) -> PartitionName:
    """The partition at this place; Refused if the client may not read it, or there is none."""
    topic = broker.log.state.catalog.identified(place[0])
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    broker.guard.check(exchange, READ_TOPIC, topic.name)
    if not 0 <= place[1] < topic.partition_count:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has no partition {place[1]}")
    return PartitionName(topic.number, place[1])


def by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    """The indexes of these partitions, by the ids of their topics."""
    of_topics: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        of_topics.setdefault(topic_id, []).append(index)
    return of_topics
