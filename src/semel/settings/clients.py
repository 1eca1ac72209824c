"""The clients, with each client's name and default for a setting, and the types of this package. Inside this package
every setting has Java's name. There is one table for each client; a setting that the client does not have is not in its
table. The defaults are those of confluent-kafka 2.16, aiokafka 0.14, kafka-python 3.0 and Java 4.3; a test compares
them with what is installed. This module must never depend on the meaning of a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Value = str | int | bool

# The largest number of retries: the delivery timeout ends them.
RETRIES_MAX: Final = 2_147_483_647


class Semantics(StrEnum):
    """How often each record is stored in the end if clients, networks and brokers fail."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Client(StrEnum):
    """The client that settings are for. `CONFLUENT` is confluent-kafka, and any other client built on librdkafka."""

    CONFLUENT = "confluent"
    AIOKAFKA = "aiokafka"
    KAFKA_PYTHON = "kafka-python"
    JAVA = "java"


class Role(StrEnum):
    """Whether the client produces or consumes."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


class Unreadable(ValueError):
    """The setting cannot have this value; the message says which values it can have."""


def read_switch(value: object) -> bool:
    """A value that is on or off."""
    switch = {"true": True, "false": False, "1": True, "0": False}.get(str(value).strip().lower())
    if switch is None:
        raise Unreadable("true or false")
    return switch


def read_number(value: object) -> int:
    """A number; infinity and Java's largest numbers become the largest one."""
    if value == float("inf") or value == "Integer.MAX_VALUE":
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


# -- the tables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """One setting of one client. Without a `default` the setting is unset unless the user sets it."""

    name: str
    default: Value | None = None
    other_names: tuple[str, ...] = ()


_JAVA_PRODUCER: Final = {
    "enable.idempotence": Known("enable.idempotence", True),
    "acks": Known("acks", "all"),
    "retries": Known("retries", RETRIES_MAX),
    "max.in.flight.requests.per.connection": Known("max.in.flight.requests.per.connection", 5),
    "linger.ms": Known("linger.ms", 5),
    "batch.size": Known("batch.size", 16_384),
    "request.timeout.ms": Known("request.timeout.ms", 30_000),
    "delivery.timeout.ms": Known("delivery.timeout.ms", 120_000),
    "transactional.id": Known("transactional.id"),
    "transaction.timeout.ms": Known("transaction.timeout.ms", 60_000),
}
_JAVA_CONSUMER: Final = {
    "isolation.level": Known("isolation.level", "read_uncommitted"),
    "enable.auto.commit": Known("enable.auto.commit", True),
    "auto.offset.reset": Known("auto.offset.reset", "latest"),
    "session.timeout.ms": Known("session.timeout.ms", 45_000),
    "heartbeat.interval.ms": Known("heartbeat.interval.ms", 3_000),
    "max.poll.interval.ms": Known("max.poll.interval.ms", 300_000),
    "request.timeout.ms": Known("request.timeout.ms", 30_000),
}


def _with_underscores(table: Mapping[str, Known], **defaults: Value) -> dict[str, Known]:
    """The same table with the names of Python's clients, and with these other defaults."""
    renamed = {java: known.name.replace(".", "_") for java, known in table.items()}
    return {java: Known(name, defaults.get(name, table[java].default)) for java, name in renamed.items()}


_KAFKA_PYTHON_PRODUCER: Final = _with_underscores(_JAVA_PRODUCER, linger_ms=0)

# aiokafka has one timeout for an answer and for all repetitions, repeats until it is over (an idempotent producer for
# ever), and has one request under way for each partition.
_AIOKAFKA_PRODUCER: Final = {
    "enable.idempotence": Known("enable_idempotence", False),
    "acks": Known("acks", "1"),
    "linger.ms": Known("linger_ms", 0),
    "batch.size": Known("max_batch_size", 16_384),
    "delivery.timeout.ms": Known("request_timeout_ms", 40_000),
    "transactional.id": Known("transactional_id"),
    "transaction.timeout.ms": Known("transaction_timeout_ms", 60_000),
}

# librdkafka sends `request.timeout.ms` to the broker, but waits for an answer up to the socket's timeout. Idempotence
# and transactions change some of its defaults; these are the defaults without them.
_CONFLUENT_PRODUCER: Final = {
    "enable.idempotence": Known("enable.idempotence", False),
    "acks": Known("acks", "all", ("request.required.acks",)),
    "retries": Known("retries", RETRIES_MAX, ("message.send.max.retries",)),
    "max.in.flight.requests.per.connection": Known(
        "max.in.flight.requests.per.connection", 1_000_000, ("max.in.flight",)
    ),
    "linger.ms": Known("linger.ms", 5, ("queue.buffering.max.ms",)),
    "batch.size": Known("batch.size", 1_000_000),
    "request.timeout.ms": Known("socket.timeout.ms", 60_000),
    "delivery.timeout.ms": Known("delivery.timeout.ms", 300_000, ("message.timeout.ms",)),
    "transactional.id": Known("transactional.id"),
    "transaction.timeout.ms": Known("transaction.timeout.ms", 60_000),
    "metadata.recovery.strategy": Known("metadata.recovery.strategy", "rebootstrap"),
}
_CONFLUENT_CONSUMER: Final = {
    **_JAVA_CONSUMER,
    "isolation.level": Known("isolation.level", "read_committed"),
    "enable.auto.offset.store": Known("enable.auto.offset.store", True),
    "request.timeout.ms": Known("socket.timeout.ms", 60_000),
}
# aiokafka waits for its turn in a group no longer than for any other answer, and so needs its own patience.
_AIOKAFKA_CONSUMER: Final = {
    java: known
    for java, known in _with_underscores(_JAVA_CONSUMER, session_timeout_ms=10_000).items()
    if java != "request.timeout.ms"
}

TABLES: Final[Mapping[Client, Mapping[Role, Mapping[str, Known]]]] = {
    Client.JAVA: {Role.PRODUCER: _JAVA_PRODUCER, Role.CONSUMER: _JAVA_CONSUMER},
    Client.KAFKA_PYTHON: {
        Role.PRODUCER: _KAFKA_PYTHON_PRODUCER,
        Role.CONSUMER: _with_underscores(_JAVA_CONSUMER),
    },
    Client.AIOKAFKA: {
        Role.PRODUCER: _AIOKAFKA_PRODUCER,
        Role.CONSUMER: _AIOKAFKA_CONSUMER,
    },
    Client.CONFLUENT: {Role.PRODUCER: _CONFLUENT_PRODUCER, Role.CONSUMER: _CONFLUENT_CONSUMER},
}

# Names that only one client has, besides those in the tables: they show which client a file is for.
_OF_LIBRDKAFKA: Final = (
    *(
        "message.timeout.ms",
        "enable.auto.offset.store",
        "socket.timeout.ms",
        "log_level",
        "debug",
        "batch.num.messages",
    ),
    *("queue.buffering.max.ms", "queue.buffering.max.messages", "enable.gapless.guarantee", "statistics.interval.ms"),
    *("message.send.max.retries", "request.required.acks", "max.in.flight", "broker.address.family", "sasl.username"),
    *(
        "enable.partition.eof",
        "metadata.broker.list",
        "topic.metadata.refresh.interval.ms",
    ),
)
_OF_JAVA: Final = (
    *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "sasl.jaas.config"),
    *("buffer.memory", "max.block.ms", "interceptor.classes", "partitioner.class", "max.poll.records"),
    *("max.request.size", "metric.reporters", "ssl.truststore.location", "ssl.keystore.location"),
)
_OF_KAFKA_PYTHON: Final = (
    *("retries", "delivery_timeout_ms", "max_in_flight_requests_per_connection", "batch_size", "max_block_ms"),
    *("reconnect_backoff_ms", "reconnect_backoff_max_ms", "ssl_cafile", "ssl_certfile", "socket_options", "selector"),
)
_OF_AIOKAFKA: Final = ("max_batch_size", "loop", "rebalance_timeout_ms")


# Names that the client also has, for settings that this package does not know.
SOMETHING_ELSE: Final[Mapping[Client, frozenset[str]]] = {
    **dict.fromkeys(Client, frozenset()),
    Client.CONFLUENT: frozenset({"request.timeout.ms"}),
    Client.JAVA: frozenset({"metadata.recovery.strategy"}),
}

# Settings that both producers and consumers have, so they do not show the role.
_OF_BOTH_ROLES: Final = (
    *("request.timeout.ms", "request_timeout_ms", "socket.timeout.ms", "metadata.recovery.strategy"),
    *("max.in.flight", "max.in.flight.requests.per.connection", "max_in_flight_requests_per_connection"),
)


def client_of(names: set[str], *, from_properties: bool = False) -> Client | None:
    """The client that has settings of these names. Names with dots are librdkafka's, unless only Java has them, or they
    come from a properties file.
    """
    if any("." in name for name in names):
        if names & set(_OF_LIBRDKAFKA):
            return Client.CONFLUENT
        return Client.JAVA if from_properties or names & set(_OF_JAVA) else Client.CONFLUENT
    if names & set(_OF_KAFKA_PYTHON):
        return Client.KAFKA_PYTHON
    return Client.AIOKAFKA if names & set(_OF_AIOKAFKA) else None


def roles_of(client: Client, names: set[str]) -> tuple[Role, ...]:
    """The roles of a client with these settings: producer, consumer, both if one file has both, or unknown."""
    return tuple(role for role in Role if names & names_of(client, role) - set(_OF_BOTH_ROLES))


def names_of(client: Client, role: Role) -> set[str]:
    """All names that the table of a role has for its settings."""
    return {name for known in TABLES[client][role].values() for name in (known.name, *known.other_names)}
