"""How far a query has come, shown to those who watch consumer groups: an option, for tools that display lag.

Nobody reads by it. Spark's checkpoint says where a query goes on, so what cannot be shown must never stop one. And it
must never overwrite what somebody else has committed: an application that is down would lose its place.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from semel.client.places import TopicPartition
from semel.client.settings import ClientSettings

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Committed

_LOG: Final = logging.getLogger(__name__)
# What stands beside each offset: by this a group is known to be one that queries show themselves in.
MARK: Final = "how far a query of semel's is"
_SECONDS_MAX: Final = 30


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

        offsets = [Committed(place.topic, place.partition, offset, MARK) for place, offset in reached.items()]
        try:
            if self._consumer is None:
                named = {"group.id": self._settings.group_id, "enable.auto.commit": False, "log_level": 2}
                self._consumer = Consumer(self._settings.for_librdkafka() | named)
            if not self._shown and self._is_somebody_elses(self._consumer, offsets):
                return
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._shown = dict(reached)
        except KafkaException as error:
            self._is_wanted = False
            _LOG.warning("group %s does not show how far the query is: %s", self._settings.group_id, error)

    def _is_somebody_elses(self, consumer: "Consumer", offsets: "list[Committed]") -> bool:
        """Whether the group has offsets of these partitions that no query has committed; then it is left alone."""
        for held in consumer.committed(offsets, _SECONDS_MAX):
            if held.offset >= 0 and held.metadata != MARK:
                self._is_wanted = False
                _LOG.warning(
                    "group %s has offsets of %s that no query of semel's has committed, and they stay: name a group of "
                    "the query's own in kafka.group.id, or delete this one (semel groups delete %s)",
                    *(self._settings.group_id, held.topic, self._settings.group_id),
                )
                return True
        return False

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
