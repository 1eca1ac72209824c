"""The listeners of a broker, with TLS and login, and the limit on how many connections have not passed these yet.

A client is called a stranger until it has established TLS and, if the listener asks for it, has logged in. This file
must never see a request.
"""

import asyncio
import errno
import logging
import os
import secrets
import ssl
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from semel.log.broker.certificates import Certificates, CertificatesRefused, ClientAuth, TlsSettings
from semel.log.broker.connection import Connection, Host
from semel.log.broker.events import Events
from semel.log.broker.limits import Limits
from semel.log.broker.metrics import Metrics
from semel.log.broker.runtime import Runtime
from semel.log.broker.tls import RECEIVED_BYTES, TlsLayer
from semel.log.core.access import ANONYMOUS, Principal
from semel.log.core.entries import LoginSecretMade
from semel.log.core.users import SECRET_BYTES, Users
from semel.log.places import Places
from semel.log.security.listeners import (
    Listener,
    ListenersRefused,
    SecurityProtocol,
    check_anonymous_super_user,
    check_listeners,
)
from semel.log.security.login import Login
from semel.log.security.tokens import OAUTHBEARER, TokenSettings
from semel.log.storage import aside
from semel.log.storage.log import Log
from semel.wire.steps import Door

# When files were put aside, the event names this many of them.
NAMED_MAX: Final = 10

if TYPE_CHECKING:
    from semel.log.broker.token_keys import TokenKeys


class Doors:
    """The listeners of one broker, and their TLS and logins."""

    def __init__(
        self,
        listeners: list[Listener],
        insecure: bool,
        tls: TlsSettings | None,
        tokens: TokenSettings | None,
        super_users: Collection[str],
        time_of_day: Callable[[], float],
        limits: Limits,
        metrics: Metrics,
        events: Events,
    ) -> None:
        """`listeners` get their ports when they are opened. ListenersRefused, CertificatesRefused or TokensRefused if
        these settings cannot serve them.
        """
        check_listeners(listeners, insecure=insecure)
        if not insecure and str(ANONYMOUS) in super_users:
            must_show = tls is not None and tls.client_auth is ClientAuth.REQUIRED
            check_anonymous_super_user(listeners, must_show_certificate=must_show)
        if tokens is not None and not any(listener.takes_tokens for listener in listeners):
            raise ListenersRefused("tokens are accepted over SASL_SSL only, and no listener is SASL_SSL")
        for listener in listeners:
            if listener.protocol.uses_tls and tls is None:
                raise ListenersRefused(f"listener {listener.name} is {listener.protocol}, and no certificate is named")
        self._listeners = listeners
        self._servers: list[asyncio.Server] = []
        # Whether clients can connect.
        self.are_open = False
        # Also for TLS without certificates of clients: such a listener may be reached from other machines, and without
        # access rules everybody could do everything there.
        self.need_access_rules = any(listener.protocol is not SecurityProtocol.PLAINTEXT for listener in listeners)
        self._asks_for_logins = any(listener.protocol.uses_sasl for listener in listeners)
        self._certificates: Final = None if tls is None else Certificates(tls)
        self._tokens: Final = None if tokens is None else _token_keys(tokens, events, time_of_day)
        # Only one password at a time is in the queue of the thread that hashes it, so that the batches in that queue
        # wait for one hash, and not for the hashes of all strangers.
        self._hashing = Door(1)
        # The receive buffer that all TLS layers share, one after the other.
        self._tls_bytes = memoryview(bytearray(RECEIVED_BYTES))
        self._metrics = metrics
        self._events = events
        # The places of the connections that have not logged in yet.
        self.strangers: Final[Places[Connection]] = Places(
            limits.unknown_connections_max,
            lambda connection: connection.is_resting,
            per_address_max=limits.unknown_connections_per_address_max,
        )

    def begin(self, runtime: Runtime) -> None:
        """Make the log's secret for the salts of unknown users, if it has none yet."""
        if self._asks_for_logins and not runtime.log.state.users.secret:
            runtime.commit(LoginSecretMade(secrets.token_bytes(SECRET_BYTES)))
            runtime.pump.sync_soon()

    @property
    def listener_names(self) -> list[str]:
        return [listener.name for listener in self._listeners]

    # -- how a connection begins --------------------------------------------------------------------------------------

    async def open(self, host: Host, users: Users) -> None:
        """Take the ports of all listeners. OSError, which names the address, if one of them is not free."""
        # An earlier call may have been cancelled.
        self.close()
        for number, listener in enumerate(self._listeners):
            connection = partial(self._connection, host, number, users)
            try:
                server = await asyncio.get_running_loop().create_server(
                    connection, listener.host, listener.port, backlog=512, reuse_address=True, start_serving=False
                )
            except OSError as error:
                error.filename = listener.address
                raise
            self._servers.append(server)
            self._listeners[number] = listener.bound_to(server.sockets[0].getsockname()[1])
        if self._tokens is not None:
            self._tokens.refresh()

    async def let_in(self) -> None:
        """Accept connections. OSError, which names the address, if another process listens there since `open`."""
        for server, listener in zip(self._servers, self._listeners, strict=False):
            try:
                await server.start_serving()
                # asyncio raises here; uvloop closes the socket without an error.
                if any(listening.fileno() < 0 for listening in server.sockets):
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            except OSError as error:
                error.filename = listener.address
                raise
        self.are_open = bool(self._servers)

    def tell_started(self, log: Log) -> None:
        """Tell the operator where clients can connect, and what they find there."""
        recovery: dict[str, Any] = {"topics": len(log.state.catalog), "journal_position": log.end}
        recovery |= {"replayed_bytes": log.replayed_bytes, "leader_epoch": log.state.partitions.leader_epoch}
        if log.put_aside:
            some = ", ".join(log.put_aside[:NAMED_MAX])
            where = log.files.describe(aside.DIRECTORY)
            self._events.tell(logging.WARNING, "files_set_aside", count=len(log.put_aside), paths=some, directory=where)
        for listener in self._listeners:
            self._events.tell(logging.INFO, "started", listener=listener.name, address=listener.address, **recovery)

    def close(self) -> None:
        """Accept no more connections."""
        self.are_open = False
        while self._servers:
            self._servers.pop().close()

    def _connection(self, host: Host, number: int, users: Users) -> asyncio.BufferedProtocol:
        """A new connection, with a login if its listener asks for one, and with TLS if its listener has it."""
        listener, login = self._listeners[number], None
        if listener.protocol.uses_sasl:
            tokens = self._tokens if listener.takes_tokens else None
            mechanisms = listener.mechanisms if tokens is None else (*listener.mechanisms, OAUTHBEARER)
            login = Login(mechanisms, users, secrets.token_urlsafe, tokens, self._hashing)
        connection = Connection(host, listener, login)
        if not listener.protocol.uses_tls or self._certificates is None:
            return connection
        return TlsLayer(connection, self._certificates.context, self._tls_bytes)

    # -- strangers ----------------------------------------------------------------------------------------------------

    def note_known(self, connection: Connection) -> None:
        """A client is no longer a stranger."""
        self.strangers.leave(connection)

    # -- TLS ----------------------------------------------------------------------------------------------------------

    @property
    def uses_tls(self) -> bool:
        """Whether a listener uses TLS."""
        return self._certificates is not None

    @property
    def certificate_expires_at(self) -> int | None:
        """When the broker's certificate expires, in seconds since 1970; None without TLS, or if that is unknown."""
        return None if self._certificates is None else self._certificates.expires_at

    def tls_context(self) -> ssl.SSLContext:
        """The context for a new connection that shows no certificate of its own. AssertionError without TLS."""
        assert self._certificates is not None
        return self._certificates.plain_context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal that a client's certificate names. NoName or ValueError if it names none."""
        return ANONYMOUS if self._certificates is None else self._certificates.principal_of(certificate)

    def tls_failed(self, connection: Connection, reason: str) -> None:
        """The TLS handshake with a client failed."""
        self._metrics.refused_handshakes += 1
        self._events.tell(logging.WARNING, "tls_refused", peer=connection.peer, reason=reason)

    def reload_certificates(self) -> None:
        """Read the files of TLS again, for new connections. If they cannot be used, nothing changes, and the reason is
        logged.
        """
        if self._certificates is None:
            return
        try:
            self._certificates.read_again()
        except CertificatesRefused as error:
            self._events.tell(logging.ERROR, "certificates_refused", reason=error)
        else:
            self._events.tell(logging.INFO, "certificates_read")

    def look_at_credentials(self) -> None:
        """Read the certificates again if their files have changed, and the keys of tokens if it is time. Logins alone
        would not do: the first one after a long time would still be judged by the old keys.
        """
        if self._certificates is not None and self._certificates.has_changed():
            self.reload_certificates()
        if self._tokens is not None:
            self._tokens.refresh()


def _token_keys(tokens: TokenSettings, events: Events, time_of_day: Callable[[], float]) -> "TokenKeys":
    # Imported here, because most brokers take no tokens, and an HTTP client takes long to import.
    from semel.log.broker.token_keys import TokenKeys

    return TokenKeys(tokens, events, time_of_day=time_of_day)
