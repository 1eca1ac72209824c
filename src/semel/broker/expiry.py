"""Forgets what nobody has used for so long that nobody will miss it: producers, transactional ids, offsets of groups.

Each time it is told and counted: whoever comes back later is taken for new, and an operator has to be able to see why.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from semel.core.entries import GroupDeleted
from semel.core.steps import APPEND_PIECES, Steps

if TYPE_CHECKING:
    from semel.broker.broker import Broker

# How often offsets are looked through, as in Apache Kafka (offsets.retention.check.interval.ms).
EXPIRY_SECONDS: Final = 600.0
# How often transactional ids are, as in Apache Kafka.
FORGET_SECONDS: Final = 3600.0
# So many of the transactional ids that are forgotten at once stand in the event by their names.
NAMED_MAX: Final = 10


def forget_silent_producers(broker: "Broker") -> Steps[None]:
    forgotten = yield from broker.log.forget(broker.now_ms(), broker.steady_ms())
    if forgotten:
        broker.metrics.forgotten_producers += forgotten
        broker.events.tell(logging.INFO, "producers_forgotten", producers=forgotten)


def forget_silent_transactional_ids(broker: "Broker") -> Steps[None]:
    expiration_ms = broker.limits.transactional_id_expiration_ms
    for entry in broker.log.state.transaction_rules.silent(_counted_now_ms(broker, expiration_ms), expiration_ms):
        entry = replace(entry, at_ms=broker.now_ms())
        broker.log.commit(entry)
        names = entry.transactional_ids
        broker.metrics.forgotten_transactional_ids += len(names)
        named = ", ".join(names[:NAMED_MAX])
        broker.events.tell(logging.INFO, "transactional_ids_forgotten", transactional_ids=len(names), named=named)
        yield APPEND_PIECES + len(names)


def _counted_now_ms(broker: "Broker", period_ms: int) -> int:
    """The time, but earlier by as long as there was no broker to speak to, as far as this period goes back."""
    now_ms = broker.now_ms()
    broker.log.note_time(now_ms, broker.steady_ms())
    return now_ms - broker.log.state.silence.allowed_ms(now_ms, period_ms) + period_ms


def forget_old_offsets(broker: "Broker") -> Steps[None]:
    log = broker.log

    def name_of(number: int) -> str:
        topic = log.state.catalog.numbered(number)
        return "" if topic is None else topic.name

    retention_ms = broker.limits.offsets_retention_ms
    now_ms = _counted_now_ms(broker, retention_ms)
    for group in list(log.state.groups):
        for entry in log.state.groups.decide_expiry(group, now_ms, retention_ms, name_of):
            log.commit(entry)
            if isinstance(entry, GroupDeleted):
                broker.events.tell(logging.INFO, "group_forgotten", group=entry.group)
            else:
                forgotten = len(entry.partitions)
                broker.metrics.forgotten_offsets += forgotten
                broker.events.tell(logging.INFO, "offsets_forgotten", group=entry.group, partitions=forgotten)
        yield 1 + len(group.offsets.committed) // 10
