"""Strangers who take what they can get: they get a bounded number of places, and an honest client notices nothing.

By counts: while a flood stands, each request of the honest client is answered, and a new one gets in.
"""

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from asking_over_tls import TlsAsker, tls_socket
from eventually import eventually
from process_memory import memory_bytes
from secured import PASSWORD, WRONG, SecuredBroker, own_client
from semel.log.broker.certificates import TlsSettings
from semel.log.broker.limits import Limits
from semel.log.security.listeners import SecurityProtocol
from semel.testing.certificates import Authority
from semel.testing.served import ServedBroker
from semel.wire.scram import Mechanism
from semel.wire.versions import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE

FLOODER = "127.0.0.2"
PLACES = 10
COUNT = 40
# The beginning of a ClientHello that says it has 512 bytes.
HELLO = bytes((0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(authority: Authority) -> Iterator[SecuredBroker]:
    tls = TlsSettings(*authority.issue("broker", "localhost", "127.0.0.1"))
    limits = Limits(unknown_connections_max=50, unknown_connections_per_address_max=PLACES, failed_login_delay_ms=1)
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=tls, limits=limits) as broker:
        broker.add_user("alice", PASSWORD)
        yield broker


def log_in(ask: TlsAsker, password: str) -> int:
    """The error that the login ends with; 0 is none."""
    mechanism = Mechanism.SCRAM_SHA_256
    ask(SASL_HANDSHAKE, mechanism=mechanism.sasl_name)
    steps = own_client(mechanism, "alice", password)
    first = ask(SASL_AUTHENTICATE, auth_bytes=next(steps))
    return int(ask(SASL_AUTHENTICATE, auth_bytes=steps.send(first.auth_bytes)).error_code)


def plain(broker: SecuredBroker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 30, source_address=(FLOODER, 0))


# Each opens one connection more, and leaves it as it is.


def silent(broker: SecuredBroker, authority: Authority) -> socket.socket:
    return plain(broker)


def handshake_byte_by_byte(broker: SecuredBroker, authority: Authority) -> socket.socket:
    connected = plain(broker)
    for byte in HELLO:
        connected.send(bytes([byte]))
    return connected


def no_tls(broker: SecuredBroker, authority: Authority) -> socket.socket:
    connected = plain(broker)
    connected.send(b"GET / HTTP/1.1\r\n" * 10)
    return connected


def login_that_never_ends(broker: SecuredBroker, authority: Authority) -> socket.socket:
    connected = tls_socket(broker.bootstrap, authority, source=FLOODER)
    connected.send(bytes((0, 0, 0x70, 0, 0, 17, 0, 1)))
    return connected


def wrong_password(broker: SecuredBroker, authority: Authority) -> socket.socket:
    with TlsAsker(broker.bootstrap, authority, source=FLOODER) as ask:
        assert log_in(ask, WRONG) != 0
    return socket.socket()


@pytest.mark.parametrize("flood", [silent, handshake_byte_by_byte, no_tls, login_that_never_ends, wrong_password])
def test_an_honest_client_is_served_beside_a_flood_and_another_one_gets_in(
    flood: Callable[[SecuredBroker, Authority], socket.socket], broker: SecuredBroker, authority: Authority
) -> None:
    answers = 0
    with ExitStack() as open_ones, TlsAsker(broker.bootstrap, authority) as honest:
        assert log_in(honest, PASSWORD) == 0
        for _ in range(COUNT):
            # Where there is no place for it, it is sent away.
            with suppress(OSError):
                open_ones.enter_context(flood(broker, authority))
            answers += honest(METADATA, 1, topics=[]).controller_id == 1
            assert broker.look(lambda inner: len(inner.doors.strangers)) <= PLACES
        assert answers == COUNT
        with TlsAsker(broker.bootstrap, authority) as another:
            assert log_in(another, PASSWORD) == 0
            assert another(API_VERSIONS, 0).error_code == 0
    assert eventually(lambda: broker.look(lambda inner: not inner.doors.strangers))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_ten_thousand_half_open_connections_take_no_more_than_five_hundred_do(
    authority: Authority, tmp_path: Path
) -> None:
    """They come from fifty addresses, begin a handshake, and keep their end open whatever the broker does."""
    certificate, key = authority.issue("served", "localhost", "127.0.0.1")
    options = (f"--tls-certificate={certificate}", f"--tls-key={key}", "--log-level=error")
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(12_000, raised[1]), raised[1]))
    try:
        with (
            ServedBroker(tmp_path / "data", "--listen=SSL://localhost:0", *options) as broker,
            ExitStack() as open_ones,
        ):
            address = broker.addresses.rpartition("//")[2]
            port = int(address.rpartition(":")[2])
            honest = open_ones.enter_context(TlsAsker(address, authority))
            before = memory_bytes(broker.process_id)
            for number in range(10_000):
                source = (f"127.0.1.{number % 50 + 1}", 0)
                connected = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 30, source))
                with suppress(OSError):
                    connected.send(HELLO)
                if number % 100 == 0:
                    assert honest(API_VERSIONS, 0).error_code == 0
            sockets = sum(name.startswith("socket:") for name in _files_of(broker.process_id))
            assert sockets < Limits().unknown_connections_max + 50
            assert memory_bytes(broker.process_id) - before < 100 * 1024 * 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raised)


def _files_of(process_id: int) -> list[str]:
    """What the process has open. It may close something meanwhile."""
    names = []
    for link in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(link.readlink().name)
    return names
