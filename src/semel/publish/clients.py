"""How the clients of a publisher are set, how long they are waited for, and what they met meanwhile.

All settings have librdkafka's names. A setting that would break the promise is refused by name, and none is changed
silently. A client that meets a wrong password goes on trying, and its callers only hear that no broker answered in
time; what it met is for messages, and must never decide anything.
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
    """The right that a cluster with ACLs asks for if it refuses with this code, to add to the reason; empty for
    other codes."""
    kind = _GUARDED.get(code)
    return "" if kind is None else f"; this user needs the right {right} on {kind} {name!r}"


def remedy_of(error: KafkaError) -> str:
    """What a user can look at."""
    return _REMEDIES.get(error.code(), NO_WAY_THERE)


class ClientEvents:
    """What the clients of one publisher have met last, and would mend by themselves."""

    def __init__(self) -> None:
        self._error: KafkaError | None = None

    def listener(self, own: Callable[[KafkaError], Any] | None) -> Callable[[KafkaError], None]:
        """For `error_cb`; the user's own is called as well."""

        def listen(error: KafkaError) -> None:
            # That all of them are away says less than why one is.
            if self._error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
                self._error = error
            if own is not None:
                own(error)

        return listen

    def forget(self) -> None:
        """Somebody answered, or others ask now: what was met is over."""
        self._error = None

    @property
    def is_login_refused(self) -> bool:
        """Whether a broker has refused the user or the password, and none has answered these clients since."""
        return self._error is not None and self._error.code() == KafkaError._AUTHENTICATION

    def failure(self, message: str) -> PublishFailed:
        """The error for a call whose time is over, or that need not wait for that: a login that was refused."""
        return LoginRefused(message) if self.is_login_refused else PublishFailed(message)

    def why(self, reason: str, otherwise: str | None = None) -> str:
        """The reason with what to do, in place of what the client says of its waiting."""
        if self._error is not None:
            return f"{self._error.str()}: {remedy_of(self._error)}"
        return reason if otherwise is None else f"{reason}: {otherwise}"


# -- how long is left --------------------------------------------------------------------------------------------------


class Deadline:
    """A moment from which on nothing is waited for any more."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_seconds(self) -> float:
        """What a client may be given as its timeout; 0 when the time is over."""
        return max(self._at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left_seconds <= 0.0


# -- settings ----------------------------------------------------------------------------------------------------------


TOPIC_PREFIX: Final = "semel-publish-"
# A topic's name has 249 characters at most, and the prefix takes some.
NAME_LENGTH_MAX: Final = 249 - len(TOPIC_PREFIX)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
# What the broker gives a transaction beyond the time that a call may take, so that it never ends one under our hands.
_TRANSACTION_SLACK_MS: Final = 10_000

# A library does not print: what librdkafka says goes to the log of the program, if it has one.
logger = logging.getLogger("semel.publish.librdkafka")
logger.addHandler(logging.NullHandler())

_DEFAULTS: Final[Mapping[str, Any]] = {
    # Java's clients place keys like this, so that a key is where they look for it.
    "partitioner": "murmur2_random",
    "linger.ms": 5,
}
_CONNECTING: Final[Mapping[str, Any]] = {
    "logger": logger,
    # Otherwise librdkafka starts again from its bootstrap servers whenever all brokers are away, and logs that twenty
    # times a second.
    "metadata.recovery.strategy": "none",
}
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
# Each of these has one value with which the promise holds, or some.
_ONLY: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "enable.idempotence": (frozenset({"true"}), "without it a retry is a second record"),
    "acks": (frozenset({"all", "-1"}), "a record that not all replicas have can be lost after its commit"),
    "request.required.acks": (frozenset({"all", "-1"}), "a record that not all replicas have can be lost"),
}
# Which settings are about the connection, so that those who look after the cursor connect like the producer.
_OF_CONNECTIONS: Final = re.compile(
    r"(security|ssl|sasl|enable\.ssl|enable\.sasl|socket|client|broker\.(address|version)|api\.version|reconnect"
    r"|connections\.max|retry\.backoff|metadata|log_level|logger|debug|oauth_cb|resolve_cb|error_cb)\b.*"
)


@dataclass(frozen=True)
class PublishSettings:
    """What the clients are made with."""

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
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
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


def _check(setting: str, value: Any) -> None:
    if setting in _OURS:
        raise PublishRefused(f"{setting} cannot be set: {_OURS[setting]}")
    good, reason = _ONLY.get(setting, (frozenset(), ""))
    if good and str(value).lower() not in good:
        raise PublishRefused(f"{setting}={value!r} cannot be set: {reason}. Leave it out")
