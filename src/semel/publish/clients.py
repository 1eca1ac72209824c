"""The settings of a publisher's clients, how long a call waits for them, and the errors that they met meanwhile.

All settings have librdkafka's names. A setting that would break the promise is refused by name, and none is changed
silently. A client with a wrong password keeps trying, and its caller learns only that no broker answered in time; so
this file keeps the client's error for messages. The error must never decide whether a record was published.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError

from semel.publish.rules import LoginRefused, PublishFailed, PublishRefused

# -- what a client met, and what to do about it ------------------------------------------------------------------------


_REMEDIES: Final = {
    KafkaError._AUTHENTICATION: "look at sasl.mechanism, sasl.username and sasl.password",
    KafkaError._SSL: "look at security.protocol and the certificates",
    KafkaError._RESOLVE: "look at bootstrap.servers",
}
NO_WAY_THERE: Final = "look at bootstrap.servers and security.protocol, and whether a broker runs there"
NO_COORDINATOR: Final = (
    "no broker coordinates transactions yet. On a new cluster look at transaction.state.log.replication.factor, which "
    "must not be more than there are brokers"
)


_GUARDED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}


def lacking(code: int, right: str, name: str | None) -> str:
    """The right that is missing if a cluster with ACLs refuses with this code, to add to the reason; empty for other
    codes."""
    kind = _GUARDED.get(code)
    return "" if kind is None else f"; this user needs the right {right} on {kind} {name!r}"


def remedy_of(error: KafkaError) -> str:
    return _REMEDIES.get(error.code(), NO_WAY_THERE)


class ClientEvents:
    """The last error that the clients of one publisher have met and retry by themselves."""

    def __init__(self) -> None:
        self._error: KafkaError | None = None

    def listener(self, own: Callable[[KafkaError], Any] | None) -> Callable[[KafkaError], None]:
        """A function for `error_cb`, which also calls the user's own."""

        def listen(error: KafkaError) -> None:
            # "All brokers are down" says less than the reason why one is.
            if self._error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
                self._error = error
            if own is not None:
                own(error)

        return listen

    def forget(self) -> None:
        """Forget the error: a broker has answered, or new clients are used."""
        self._error = None

    @property
    def is_login_refused(self) -> bool:
        """Whether a broker has refused the user or the password, and none has answered since."""
        return self._error is not None and self._error.code() == KafkaError._AUTHENTICATION

    def failure(self, message: str) -> PublishFailed:
        """The error for a call whose time is over, or whose login was refused, which need not wait for that."""
        return LoginRefused(message) if self.is_login_refused else PublishFailed(message)

    def why(self, reason: str, otherwise: str | None = None) -> str:
        """The client's last error and what to do about it; without one, the given reason."""
        if self._error is not None:
            return f"{self._error.str()}: {remedy_of(self._error)}"
        return reason if otherwise is None else f"{reason}: {otherwise}"


# -- how long is left --------------------------------------------------------------------------------------------------


class Deadline:
    """The time at which a call stops waiting."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_seconds(self) -> float:
        """The timeout to give to a client; 0 when the time is over."""
        return max(self._at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left_seconds <= 0.0


# -- settings ----------------------------------------------------------------------------------------------------------


TOPIC_PREFIX: Final = "semel-publish-"
# A topic's name has at most 249 characters, including the prefix.
NAME_LENGTH_MAX: Final = 249 - len(TOPIC_PREFIX)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
# How much longer than a call a transaction may take, so that the broker never aborts one while a call uses it.
_TRANSACTION_SLACK_MS: Final = 10_000


def logger_of_client(name: str) -> logging.Logger:
    """A library does not print: librdkafka's messages go to the log of the program, if it has one."""
    made = logging.getLogger(name)
    made.addHandler(logging.NullHandler())
    made.addFilter(_lowered)
    return made


def _lowered(record: logging.LogRecord) -> bool:
    """A connection that fails is made again, and if that lasts, what uses the client says so once. To librdkafka each
    attempt is an error, and there are twenty a second while all brokers are away."""
    facility, *_ = record.args if isinstance(record.args, tuple) and record.args else ("",)
    if facility == "FAIL":
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return logging.getLogger(record.name).isEnabledFor(record.levelno)


logger = logger_of_client("semel.publish.librdkafka")

_DEFAULTS: Final[Mapping[str, Any]] = {
    # Java's clients choose the partition of a key in this way, too.
    "partitioner": "murmur2_random",
    "linger.ms": 5,
}
# For every client of librdkafka that semel makes for an application.
CONNECTING: Final[Mapping[str, Any]] = {
    # When none of the brokers that it knows answers, the client asks its bootstrap servers again. With "none" it waits
    # for brokers that may stay away, though another one has taken over.
    "metadata.recovery.strategy": "rebootstrap",
}
_CONNECTING: Final[Mapping[str, Any]] = {"logger": logger, **CONNECTING}
_OURS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "it is the first argument",
    "metadata.broker.list": "it is the first argument",
    "transactional.id": "it is made from the name, and fences the former publisher of the name",
    "isolation.level": "the cursor is read committed, or an aborted one would count",
    "delivery.report.only.error": "where the cursor was written is heard of like this",
    "on_delivery": "a record is delivered when its call returns",
    "dr_cb": "a record is delivered when its call returns",
    "dr_msg_cb": "a record is delivered when its call returns",
    "group.id": "it is a consumer's",
    "enable.auto.commit": "it is a consumer's",
}
# The values of each setting with which the promise holds.
_ONLY: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "enable.idempotence": (frozenset({"true"}), "without it a retry is a second record"),
    "acks": (frozenset({"all", "-1"}), "a record that not all replicas have can be lost after its commit"),
    "request.required.acks": (frozenset({"all", "-1"}), "a record that not all replicas have can be lost"),
}
# The settings of a connection: the clients that read the cursor connect like the producer.
_OF_CONNECTIONS: Final = re.compile(
    r"(security|ssl|sasl|enable\.ssl|enable\.sasl|socket|client|broker\.(address|version)|api\.version|reconnect"
    r"|connections\.max|retry\.backoff|metadata|log_level|logger|debug|oauth_cb|resolve_cb|error_cb)\b.*"
)


@dataclass(frozen=True)
class PublishSettings:
    """The checked settings of a publisher and its clients."""

    name: str
    timeout_seconds: float
    gaps_allowed: bool
    topic: str
    producer: Mapping[str, Any] = field(repr=False)
    connection: Mapping[str, Any] = field(repr=False)
    events: ClientEvents = field(repr=False)

    @property
    def transactional_id(self) -> str:
        return str(self.producer["transactional.id"])


def settings_of(
    bootstrap: str, name: str, gaps: str, timeout_seconds: float, cursor_topic: str | None, client: Mapping[str, Any]
) -> PublishSettings:
    """All settings, checked without a broker."""
    _check_kinds(bootstrap, timeout_seconds, cursor_topic, client)
    if not is_name(name):
        raise PublishRefused(
            f"{name!r} is no name for a publisher: letters, digits, '.', '_' and '-', {NAME_LENGTH_MAX} at most"
        )
    if gaps not in ("refuse", "allow"):
        raise PublishRefused(f'gaps={gaps!r} has no meaning; there are "refuse" and "allow"')
    if timeout_seconds <= 0:
        raise PublishRefused(f"timeout_seconds={timeout_seconds} leaves no time to publish anything")
    for setting, value in client.items():
        _check(setting, value)
    connection = {setting: value for setting, value in client.items() if _OF_CONNECTIONS.fullmatch(setting)}
    events = ClientEvents()
    watched = {"error_cb": events.listener(client.get("error_cb"))}
    connection = {**_CONNECTING, "bootstrap.servers": bootstrap, **connection, **watched}
    producer = {
        **_CONNECTING,
        **_DEFAULTS,
        "transaction.timeout.ms": int(timeout_seconds * 1000) + _TRANSACTION_SLACK_MS,
        **client,
        "bootstrap.servers": bootstrap,
        "transactional.id": f"{TOPIC_PREFIX}{name}",
        **watched,
    }
    if int(producer["transaction.timeout.ms"]) < timeout_seconds * 1000:
        raise PublishRefused(
            f"transaction.timeout.ms={producer['transaction.timeout.ms']} is shorter than a call may take "
            f"(timeout_seconds={timeout_seconds}): the broker would end transactions under way. Raise it, or leave it"
        )
    return PublishSettings(
        name, timeout_seconds, gaps == "allow", cursor_topic or f"{TOPIC_PREFIX}{name}", producer, connection, events
    )


def _check_kinds(bootstrap: object, timeout_seconds: object, cursor_topic: object, client: object) -> None:
    if not isinstance(bootstrap, str) or not bootstrap.strip():
        raise PublishRefused("the first argument is the address of a broker, such as '127.0.0.1:9092'")
    if isinstance(timeout_seconds, bool) or not isinstance(timeout_seconds, int | float):
        raise PublishRefused(f"timeout_seconds={timeout_seconds!r} is no number of seconds")
    if not isinstance(cursor_topic, str | None):
        raise PublishRefused(f"cursor_topic={cursor_topic!r} is no name of a topic")
    if not isinstance(client, Mapping):
        raise PublishRefused("client is a mapping of librdkafka's settings, and not a client or its address")


def is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= NAME_LENGTH_MAX and _NAME.fullmatch(name) is not None


def _check(setting: str, value: Any) -> None:
    if setting in _OURS:
        raise PublishRefused(f"{setting} cannot be set: {_OURS[setting]}")
    good, reason = _ONLY.get(setting, (frozenset(), ""))
    if good and str(value).lower() not in good:
        raise PublishRefused(f"{setting}={value!r} cannot be set: {reason}. Leave it out")
