"""Forgets the offsets that no group has used for so long that nobody will miss them, and groups nothing is left of."""

import logging
from typing import TYPE_CHECKING, Final

from semel.core.entries import GroupDeleted

if TYPE_CHECKING:
    from semel.broker.broker import Broker

# How often it is looked, as in Apache Kafka (offsets.retention.check.interval.ms).
EXPIRY_SECONDS: Final = 600.0


def forget_old_offsets(broker: "Broker") -> None:
    log = broker.log

    def name_of(number: int) -> str:
        topic = log.catalog.numbered(number)
        return "" if topic is None else topic.name

    for entry in log.groups.decide_expiry(broker.now_ms(), broker.limits.offsets_retention_ms, name_of):
        log.commit(entry)
        if isinstance(entry, GroupDeleted):
            broker.events.tell(logging.INFO, "group_forgotten", group=entry.group)
        else:
            broker.metrics.forgotten_offsets += len(entry.partitions)
            broker.events.tell(logging.INFO, "offsets_forgotten", group=entry.group, partitions=len(entry.partitions))
