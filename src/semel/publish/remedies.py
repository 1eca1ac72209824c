"""What a client has met while it waited in vain, and what to do about it.

A client that meets a wrong password goes on trying, and all that its callers hear is that nobody answered in time.
This must never decide anything: it is for messages.
"""

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError

_REMEDIES: Final = {
    KafkaError._AUTHENTICATION: "look at sasl.mechanism, sasl.username and sasl.password",
    KafkaError._SSL: "look at security.protocol and the certificates",
    KafkaError._RESOLVE: "look at bootstrap.servers",
}
NO_WAY_THERE: Final = "look at bootstrap.servers and security.protocol, and whether a broker runs there"
NO_COORDINATOR: Final = (
    "nobody coordinates transactions yet. On a new cluster look at transaction.state.log.replication.factor, which "
    "must not be more than there are brokers"
)


_GUARDED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}


def lacking(code: int, right: str, name: str | None) -> str:
    """The right that a cluster with ACLs wants for what it refused by this code, to put behind the reason; else
    nothing."""
    kind = _GUARDED.get(code)
    return "" if kind is None else f"; this user needs the right {right} on {kind} {name!r}"


def remedy_of(error: KafkaError) -> str:
    """What a user can look at."""
    return _REMEDIES.get(error.code(), NO_WAY_THERE)


class Heard:
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
        """Somebody answered: what was met is over."""
        self._error = None

    def why(self, said: str, otherwise: str | None = None) -> str:
        """The reason with what to do, in place of what the client says of its waiting."""
        if self._error is not None:
            return f"{self._error.str()}: {remedy_of(self._error)}"
        return said if otherwise is None else f"{said}: {otherwise}"
