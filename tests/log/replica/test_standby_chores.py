"""What a standby does for its clients by itself: it serves them too, so nothing of that may wait for a takeover."""

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from asking_over_tls import tls_socket
from eventually import eventually
from semel.log.broker import chores
from semel.log.broker.certificates import TlsSettings
from semel.log.broker.limits import Limits
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.testing.certificates import Authority
from semel.testing.pair import BrokerPair


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "HOUSEKEEPING_SECONDS", 0.01)


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    return Authority(tmp_path)


def served_by(bootstrap: str, authority: Authority) -> bytes | None:
    with tls_socket(bootstrap, authority) as connected:
        return connected.getpeercert(binary_form=True)


def serves_another(bootstrap: str, authority: Authority, first: bytes | None) -> bool:
    return served_by(bootstrap, authority) != first


def test_a_standby_reads_its_certificate_again_when_it_changes(authority: Authority) -> None:
    files, successor = authority.issue("first", "localhost"), authority.issue("second", "localhost")
    with BrokerPair(
        listeners=[Listener("TLS", SecurityProtocol.SSL, "localhost")], tls=TlsSettings(*files), insecure=True
    ) as pair:
        first = served_by(pair.standby.bootstrap, authority)
        Path(files.certificate).write_bytes(Path(successor.certificate).read_bytes())
        Path(files.key).write_bytes(Path(successor.key).read_bytes())
        for address in pair.bootstrap.split(","):
            assert eventually(partial(serves_another, address, authority, first))


def test_a_standby_closes_idle_connections() -> None:
    with BrokerPair(limits=Limits(idle_connection_ms_max=0)) as pair:
        host, _, port = pair.standby.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as idle:
            assert idle.recv(1) == b""
