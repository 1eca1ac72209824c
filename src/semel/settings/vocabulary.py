"""The words of this room: the semantics, the clients, the two roles, and how a value is read that people write.

Settings go by Java's names in here, whatever a client calls them. This file must never know what a setting is good for.
"""

from enum import StrEnum
from typing import Final

Value = str | int | bool

# As many times as a client can count: it is the delivery timeout that ends the repeating.
RETRIES_MAX: Final = 2_147_483_647


class Semantics(StrEnum):
    """How often what was sent is there in the end, when clients, networks and brokers fail."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Client(StrEnum):
    """Whose settings they are. `CONFLUENT` is confluent-kafka, and with it all that is built on librdkafka."""

    CONFLUENT = "confluent"
    AIOKAFKA = "aiokafka"
    KAFKA_PYTHON = "kafka-python"
    JAVA = "java"


class Role(StrEnum):
    """What the client does with the log."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


class Unreadable(ValueError):
    """A value is none that the setting can have; the message says what it could be."""


def read_switch(value: object) -> bool:
    """A value that is on or off."""
    switch = {"true": True, "false": False, "1": True, "0": False}.get(str(value).strip().lower())
    if switch is None:
        raise Unreadable("true or false")
    return switch


def read_number(value: object) -> int:
    """A number; what is infinite is the largest one."""
    if value == float("inf"):
        return RETRIES_MAX
    try:
        if isinstance(value, bool):
            raise ValueError
        return int(str(value).strip())
    except ValueError:
        raise Unreadable("a whole number") from None


def read_acks(value: object) -> str:
    """The one setting that is a number or a word."""
    acks = {"-1": "all", "all": "all", "0": "0", "1": "1"}.get(str(value).strip().lower())
    if acks is None:
        raise Unreadable("0, 1 or all")
    return acks
