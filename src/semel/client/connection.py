"""One connection to one broker: a socket, with TLS and a login if they are set, and the versions that both sides know.

Requests may be sent ahead; answers are read in the order of the requests. Every wait has an end. Errors are
`ConnectionLost`, which a retry over a new connection may mend, or `AuthenticationFailed`, which it will not. This file
must never send a request twice by itself.
"""

import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

from semel.client import sasl
from semel.client.errors import AuthenticationFailed, LogError, RefusedByBroker
from semel.client.settings import Address, ClientSettings
from semel.wire import fetch_client, group_list, kafka, messages, produce_client
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.fetch import FetchPartitionAnswer
from semel.wire.frames import parse_response_header, read_frame
from semel.wire.group_list import GroupInList
from semel.wire.message import Request, Response
from semel.wire.pem import why_refused
from semel.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_SHARE_GROUP_OFFSETS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CONSUMER_GROUP_DESCRIBE,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_GROUP_DESCRIBE,
    TXN_OFFSET_COMMIT,
    VersionRange,
)

A = TypeVar("A")
R = TypeVar("R", bound=Response)

# A broker sends the first batch whole, however large its topic allows it to be; no broker sends a larger frame.
FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
# Until the client is logged in, it reads the broker's versions and the messages of the login.
LOGIN_FRAME_BYTES_MAX: Final = 1024 * 1024
# The metadata of a cluster with a hundred thousand partitions takes some ten megabytes.
MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024

# After this share of its time a login counts as expired, because the next request takes a while to arrive.
_LOGIN_SHARE: Final = 0.85

_SPOKEN: Final[dict[int, VersionRange]] = {
    FETCH: fetch_client.SPOKEN,
    PRODUCE: produce_client.SPOKEN,
    LIST_OFFSETS: VersionRange(2, 7),
    METADATA: VersionRange(5, 12),
    # From 4 on a request can name several coordinators.
    FIND_COORDINATOR: VersionRange(1, 3),
    # From 3 on a producer sends its id and epoch.
    INIT_PRODUCER_ID: VersionRange(3, 4),
    # Later versions are for brokers, or for transactions that need no such request (KIP-890).
    ADD_PARTITIONS_TO_TXN: VersionRange(1, 3),
    ADD_OFFSETS_TO_TXN: VersionRange(1, 3),
    TXN_OFFSET_COMMIT: VersionRange(2, 4),
    END_TXN: VersionRange(1, 3),
    DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    LIST_TRANSACTIONS: VersionRange(0, 2),
    DESCRIBE_PRODUCERS: VersionRange(0, 0),
    DESCRIBE_CONFIGS: VersionRange(1, 4),
    INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    # Before 3, a refusal looks like a cluster without any bytes.
    DESCRIBE_LOG_DIRS: VersionRange(3, 4),
    DESCRIBE_ACLS: VersionRange(1, 3),
    CREATE_ACLS: VersionRange(1, 3),
    DELETE_ACLS: VersionRange(1, 3),
    CREATE_TOPICS: VersionRange(4, 7),
    CREATE_PARTITIONS: VersionRange(0, 3),
    # From 6 on a request may name topics by id.
    DELETE_TOPICS: VersionRange(1, 5),
    LIST_GROUPS: VersionRange(0, 5),
    DESCRIBE_GROUPS: VersionRange(0, 5),
    CONSUMER_GROUP_DESCRIBE: VersionRange(0, 0),
    SHARE_GROUP_DESCRIBE: VersionRange(1, 1),
    DESCRIBE_SHARE_GROUP_OFFSETS: VersionRange(0, 1),
    ALTER_SHARE_GROUP_OFFSETS: VersionRange(0, 0),
    DELETE_GROUPS: VersionRange(0, 2),
    # Later versions name topics only by id.
    OFFSET_COMMIT: VersionRange(2, 9),
    OFFSET_FETCH: VersionRange(2, 9),
    DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
    DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    SASL_HANDSHAKE: VersionRange(1, 1),
    SASL_AUTHENTICATE: VersionRange(0, 2),
}
# The last version that names topics by name, for APIs whose newer versions only use ids.
_NAMED_LAST: Final = {FETCH: fetch_client.NAMED_LAST}


class ConnectionLost(LogError):
    """No connection, or no answer over it."""


class ConnectionRefused(ConnectionLost):
    """No program listens at the address, or there is no such host."""


class NotSpoken(RefusedByBroker):
    """The broker is too old, or too new, for an API."""


class Connection:
    """A connection to the broker at an address, ready for requests as soon as it is made."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._where = f"{address[0]}:{address[1]}"
        self._client_id = settings.client_id
        self._correlation_id = 0
        self._expected_id = 0
        self._frame_bytes_max = LOGIN_FRAME_BYTES_MAX
        self._versions: dict[int, int] = {}
        # When the broker will want another login (KIP-368); None: never.
        self._login_ends_at: float | None = None
        self._socket = _connect(address, settings, self._where)
        self._arrivals = select.poll()
        self._arrivals.register(self._socket, select.POLLIN)
        try:
            # Every broker understands version 0, also before a login.
            for api in self._ask(kafka.api_versions.ApiVersionsRequest(), 0).api_keys:
                ours = _SPOKEN.get(api.api_key)
                if ours is not None and max(ours.min, api.min_version) <= min(ours.max, api.max_version):
                    self._versions[api.api_key] = min(ours.max, api.max_version)
            if settings.uses_sasl:
                self._log_in(settings)
        except BaseException:
            self._socket.close()
            raise
        self._frame_bytes_max = FRAME_BYTES_MAX

    @property
    def has_expired(self) -> bool:
        """Whether the broker will want another login before it answers again, so that a new connection is needed."""
        return self._login_ends_at is not None and monotonic() >= self._login_ends_at

    @property
    def fetch_version(self) -> int:
        return self._version(FETCH)

    def ask(self, request: Request[R]) -> R:
        """The answer, in the highest version that both sides know."""
        version = self._version(request.KEY)
        return self._ask(request, min(version, _NAMED_LAST.get(request.KEY, version)))

    def list_groups(self) -> tuple[int, list[GroupInList]]:
        """The error code and the groups of this broker, of which there may be very many."""
        version = self._version(LIST_GROUPS)
        self._send_request(kafka.list_groups.ListGroupsRequest(), version)
        return self._receive(LIST_GROUPS, version, group_list.decode_response)

    def send_fetch(self, version: int, request: fetch_client.PartitionFetch) -> None:
        """Ask for records. Read the answers with `receive_fetch`, in the order of the requests."""
        self._correlation_id += 1
        self._send(fetch_client.encode_request(version, self._correlation_id, self._client_id, request))

    def receive_fetch(self, version: int) -> FetchPartitionAnswer:
        """The next answer. Its records are a view of memory that nothing else uses."""
        return self._receive(FETCH, version, fetch_client.decode_response)

    def send_produce(
        self, batches: Sequence[produce_client.PartitionBatch], transactional_id: str | None, timeout_ms: int
    ) -> None:
        """Write batches. Read the answers with `receive_produce`, in the order of the requests."""
        self._correlation_id += 1
        version = self._version(PRODUCE)
        self._send(
            produce_client.encode_request(
                version, self._correlation_id, self._client_id, transactional_id, timeout_ms, batches
            )
        )

    def receive_produce(self) -> list[produce_client.PartitionProduced]:
        """The answers for the batches of the oldest request under way."""
        return self._receive(PRODUCE, self._version(PRODUCE), produce_client.decode_response)

    def has_answer(self) -> bool:
        """Whether bytes have arrived that nobody has read yet."""
        is_open = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return is_open or bool(self._arrivals.poll(0))

    def close(self) -> None:
        self._socket.close()

    def _version(self, api_key: int) -> int:
        version = self._versions.get(api_key)
        if version is None:
            raise NotSpoken(f"the broker at {self._where} does not speak API {api_key} in any version known here")
        return version

    def _ask(self, request: Request[R], version: int) -> R:
        response_type = messages.response_type_of(request)

        def decoded(version: int, frame: bytearray) -> R:
            _, body = parse_response_header(request.KEY, version, frame)
            return messages.decode_response(response_type, version, memoryview(frame)[body:], MESSAGE_BYTES_MAX)

        self._send_request(request, version)
        return self._receive(request.KEY, version, decoded)

    def _send_request(self, request: Request[Any], version: int) -> None:
        try:
            frame = messages.encode_request(request, version, self._correlation_id + 1, self._client_id)
        except UnicodeEncodeError:
            raise
        except (struct.error, ValueError, OverflowError) as error:
            raise LogError(
                f"a request of API {request.KEY} has a value that the protocol cannot hold: {error}"
            ) from None
        self._correlation_id += 1
        self._send(frame)

    def _log_in(self, settings: ClientSettings) -> None:
        mechanism = settings.sasl_mechanism
        handshake = self.ask(kafka.sasl_handshake.SaslHandshakeRequest(mechanism=mechanism))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise AuthenticationFailed(f"the broker at {self._where} does not take {mechanism}; it takes: {offered}")
        steps = sasl.steps(settings)
        token = next(steps)
        while True:
            answer = self.ask(kafka.sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                reason = answer.error_message or ErrorCode(answer.error_code).name
                who = "the token" if settings.sasl_username is None else f"user {settings.sasl_username!r}"
                raise AuthenticationFailed(f"the broker at {self._where} refused {who}: {reason}")
            try:
                token = steps.send(answer.auth_bytes)
            except StopIteration:
                self._note_lifetime(answer.session_lifetime_ms)
                return

    def _note_lifetime(self, lifetime_ms: int) -> None:
        if lifetime_ms:
            self._login_ends_at = monotonic() + _LOGIN_SHARE * lifetime_ms / 1000

    def _send(self, frame: bytes | bytearray) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from None

    def _receive(self, api_key: int, version: int, decode: Callable[[int, bytearray], A]) -> A:
        """The answer to the oldest request under way."""
        frame = self._receive_frame(api_key, version)
        try:
            return decode(version, frame)
        except ProtocolError as error:
            raise ConnectionLost(f"{self._where} sent an answer that cannot be read: {error}") from None

    def _receive_frame(self, api_key: int, version: int) -> bytearray:
        """The next frame, without its size; it has to be the answer to the oldest request under way."""
        self._expected_id += 1
        try:
            frame = read_frame(self._socket.recv_into, self._frame_bytes_max)
            correlation_id, _ = parse_response_header(api_key, version, frame)
        except OSError as error:
            raise self._lost(error) from None
        except ProtocolError as error:
            raise ConnectionLost(f"{self._where} does not speak the Kafka protocol: {error}") from None
        if correlation_id != self._expected_id:
            raise ConnectionLost(f"{self._where} answered request {correlation_id} instead of {self._expected_id}")
        return frame

    def _lost(self, error: OSError) -> LogError:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            # With TLS 1.3 a client learns only here that its certificate was refused.
            return AuthenticationFailed(f"the broker at {self._where} ended TLS: {error.reason}")
        return ConnectionLost(f"the connection to {self._where} broke: {_reason(error)}")


def _connect(address: Address, settings: ClientSettings, where: str) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout=settings.connect_timeout_ms / 1000)
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise ConnectionRefused(f"cannot connect to {where}: {_reason(error)}") from None
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {where}: {_reason(error)}") from None
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.receive_buffer_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        if settings.uses_tls:
            connected = _shake_hands(connected, address, settings, where)
        # A broker may hold a fetch for `fetch_wait_ms_max` before it answers.
        connected.settimeout((settings.request_timeout_ms + settings.fetch_wait_ms_max) / 1000)
    except BaseException as error:
        connected.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise AuthenticationFailed(f"the certificate of {where} is not trusted: {error.verify_message}") from None
        if isinstance(error, OSError):
            raise ConnectionLost(f"cannot connect to {where}: {_reason(error)}") from None
        raise
    return connected


def _shake_hands(connected: socket.socket, address: Address, settings: ClientSettings, where: str) -> socket.socket:
    context = _tls(settings)
    try:
        return context.wrap_socket(connected, server_hostname=address[0])
    except ssl.SSLCertVerificationError:
        raise
    except OSError as error:
        reason = getattr(error, "reason", None) or _reason(error)
        raise ConnectionLost(f"{where} broke off the handshake of TLS; does it speak TLS? ({reason})") from None


def _tls(settings: ClientSettings) -> ssl.SSLContext:
    certificate, key = settings.ssl_certificate_location, settings.ssl_key_location
    with _tls_errors(settings.ssl_ca_location or "the certificates of the authorities"):
        context = ssl.create_default_context(cafile=settings.ssl_ca_location, cadata=settings.ssl_ca_pem)
        context.check_hostname = settings.ssl_check_hostname
    if certificate is not None:
        # OpenSSL does not say which of the two is missing.
        contents = []
        for file in (certificate, key or certificate):
            with _tls_errors(file), open(file, "rb") as opened:
                contents.append(opened.read())
        with _tls_errors(" and ".join(dict.fromkeys((certificate, key or certificate))), *contents):
            # An empty password instead of none, or OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, settings.ssl_key_password or "")
    return context


@contextlib.contextmanager
def _tls_errors(files: str, *contents: bytes) -> Iterator[None]:
    """A context in which every error of these files names them. `contents` are those of a certificate and its key."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise AuthenticationFailed(f"{files} cannot be used for TLS: {why_refused(error, *contents)}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)
