"""Listeners: the addresses on which the broker accepts connections, with their protocols and advertised addresses.

A listener that is not on the loopback is refused if it is unencrypted, or if clients that do not say who they are may
do everything there, unless the operator says that the network is trusted. Nothing here may open a socket or resolve a
name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from semel.log.core.access import ANONYMOUS
from semel.log.security.login import MECHANISMS, SCRAM_MECHANISMS
from semel.wire.hosts import is_loopback, shown_address


class SecurityProtocol(StrEnum):
    """The protocols of listeners, with Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_sasl(self) -> bool:
        """Whether a client has to log in."""
        return self.name.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.name.endswith("SSL")


_DANGERS: Final = {
    SecurityProtocol.PLAINTEXT: "every client that reaches it may read and change everything",
    SecurityProtocol.SASL_PLAINTEXT: "everything that its clients send, passwords included, can be read on the way",
}


class ListenersRefused(ValueError):
    """These listeners cannot be served together, or not by default; the message says why."""


@dataclass(frozen=True)
class Listener:
    """An address to listen on. Without an advertised address, clients get the address itself."""

    name: str = SecurityProtocol.PLAINTEXT
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str | None = None
    advertised_port: int | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """How its clients may log in."""
        if not self.protocol.uses_sasl:
            return ()
        # PLAIN sends the password itself.
        return MECHANISMS if self.protocol.uses_tls else tuple(SCRAM_MECHANISMS)

    @property
    def takes_tokens(self) -> bool:
        """Whether its clients may log in by OAUTHBEARER: anybody who reads a token on the way could use it."""
        return self.protocol.uses_sasl and self.protocol.uses_tls

    @property
    def reached_at(self) -> tuple[str, int]:
        """The host and the port that its clients use: the advertised ones, or its own."""
        host = self.host if self.advertised_host is None else self.advertised_host
        return host, self.port if self.advertised_port is None else self.advertised_port

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for its clients."""
        return shown_address(*self.reached_at)

    @property
    def address(self) -> str:
        """The address on which it listens."""
        return shown_address(self.host, self.port)

    @property
    def is_on_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        return is_loopback(self.host)

    def bound_to(self, port: int) -> "Listener":
        """The same listener with its actual port."""
        return replace(self, port=port)


def check_listeners(listeners: Sequence[Listener], *, insecure: bool) -> None:
    """Refuse two listeners with one name, and, unless `insecure`, an unencrypted one that is not on the loopback. One
    with TLS passes even if it asks no client who it is: it puts the access rules in force.
    """
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ListenersRefused(f"two listeners are called {name}; give each a name of its own")
    for listener in listeners:
        if not insecure and not listener.is_on_loopback and not listener.protocol.uses_tls:
            raise ListenersRefused(
                f"listener {listener.name} on {listener.host or 'every address'} is {listener.protocol}: "
                f"{_DANGERS[listener.protocol]}; listen on 127.0.0.1, or pass --insecure if you trust the network"
            )


def check_anonymous_super_user(listeners: Sequence[Listener], *, must_show_certificate: bool) -> None:
    """Refuse a listener that is not on the loopback and lets in clients that do not say who they are. This is for a
    broker at which these clients may do everything.
    """
    for listener in listeners:
        says_who = listener.protocol.uses_sasl or (listener.protocol.uses_tls and must_show_certificate)
        if not listener.is_on_loopback and not says_who:
            raise ListenersRefused(
                f"listener {listener.name} on {listener.host or 'every address'} lets in clients that do not say who "
                f"they are, and {ANONYMOUS} is a super user; require certificates (--tls-client-auth), use SASL_SSL, "
                f"give {ANONYMOUS} rights by access rules, or pass --insecure if you trust the network"
            )
