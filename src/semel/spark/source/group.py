"""How far a query has come, shown to those who watch consumer groups: an option, for tools that display lag.

Nobody reads by it. Spark's checkpoint says where a query goes on, so what cannot be shown must never stop one.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from semel.spark.log.places import TopicPartition
from semel.spark.log.settings import ClientSettings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_LOG: Final = logging.getLogger(__name__)


class GroupOffsets:
    """The offsets of the group that `kafka.group.id` names, if it names one; the group has no members."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._is_wanted = settings.group_id is not None
        self._consumer: Consumer | None = None
        self._shown: Mapping[TopicPartition, int] = {}

    def show(self, reached: Mapping[TopicPartition, int]) -> None:
        """Commits these offsets for the group if they are news. After a failure it leaves the group alone."""
        if not self._is_wanted or reached == self._shown or not reached:
            return
        # Imported here, because few want it and each process that plans would pay for it.
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka import TopicPartition as Committed

        offsets = [Committed(place.topic, place.partition, offset) for place, offset in reached.items()]
        try:
            if self._consumer is None:
                named = {"group.id": self._settings.group_id, "enable.auto.commit": False, "log_level": 2}
                self._consumer = Consumer(self._settings.for_librdkafka() | named)
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._shown = dict(reached)
        except KafkaException as error:
            self._is_wanted = False
            _LOG.warning("group %s does not show how far the query is: %s", self._settings.group_id, error)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
