"""How a loop sets its client, what it refuses, and how often it does what is not a message's business."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from semel.inbox.errors import LoopFailed

# How long to wait for a record before the offsets of what is done are committed.
POLL_SECONDS: Final = 0.2
# How often the quarantine is asked for what is to be tried again, and how much of it is tried before the next record.
RETRY_EVERY_MS: Final = 1_000
DUE_COUNT_MAX: Final = 100
# What is tried again must not keep the loop from its broker for longer than this, and then the handler that it is in.
DUE_MS_MAX: Final = 10_000
REAP_EVERY_MS: Final = 60 * 60 * 1000

# A library does not print: what librdkafka says goes to the log of the program, if it has one.
logger = logging.getLogger("semel.inbox.librdkafka")
logger.addHandler(logging.NullHandler())


def for_confluent(given: Mapping[str, Any], hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    """`hear` gets what the client meets and mends by itself; so does an `error_cb` of the user's."""
    config = _checked(given, "group.id", "enable.auto.commit")
    told = config.get("error_cb")

    def tell(error: KafkaError) -> None:
        hear(error)
        if told is not None:
            told(error)

    return {**_FOR_CONFLUENT, "logger": logger, **config, "enable.auto.commit": False, "error_cb": tell}


_FOR_CONFLUENT: Final = {
    # A group without offsets begins where the topic does: it must not miss what was sent before it.
    "auto.offset.reset": "earliest",
    # Else librdkafka begins anew each time all brokers are away, and says so twenty times a second.
    "metadata.recovery.strategy": "none",
}


def for_aiokafka(given: Mapping[str, Any]) -> dict[str, Any]:
    config = _checked(given, "group_id", "enable_auto_commit")
    for name in ("key_deserializer", "value_deserializer"):
        if config.get(name) is not None:
            raise LoopFailed(f"{name} would fail where nothing can be put aside: decode in identity and in the handler")
    # Records of aborted transactions are no events; aiokafka, unlike the other client, shows them by default.
    defaults = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    return {**defaults, **config, "enable_auto_commit": False}


def _checked(given: Mapping[str, Any], group: str, auto_commit: str) -> dict[str, Any]:
    if not given.get(group):
        raise LoopFailed(f"the consumer has no {group}, so nobody would know how far it has come: name one")
    if given.get(auto_commit) in (True, "true"):
        raise LoopFailed(
            f"{auto_commit}=true would commit offsets before their effects, which loses events: leave it out"
        )
    return dict(given)
