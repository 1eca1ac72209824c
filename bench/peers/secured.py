"""semel and Apache Kafka with two listeners more: one over TLS 1.3, one with logins by SCRAM. Both get the same
certificate and the same cipher. Over the plain listener a measure makes its topics and users; it must measure nothing
there."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bench.peers.kafka import SERVER_PROPERTIES, Kafka
from bench.peers.process import Broker, SkipReason
from bench.peers.semel import Semel
from semel.testing.certificates import Authority, Files
from semel.testing.ports import free_port

# What OpenSSL and Java agree on by themselves, too.
CIPHER = "TLS_AES_256_GCM_SHA384"
USER, PASSWORD = "bench", "bench-secret"
SUPER_USERS = ("User:ANONYMOUS", f"User:{USER}")


class _Doors:
    """The ports of the listeners, and the files of a certificate for them."""

    def __init__(self) -> None:
        self.tls_port = free_port()
        self.login_port = free_port()

    def certificate(self, directory: Path) -> tuple[Authority, Files]:
        authority = Authority(directory / "certificates")
        return authority, authority.issue("broker", "127.0.0.1", "localhost")


class SecuredSemel(Semel):
    # Rules are in force where clients log in; who is no super user has to be allowed.
    super_users: ClassVar[tuple[str, ...]] = SUPER_USERS

    def __init__(self) -> None:
        super().__init__(durability="os")
        self.doors = _Doors()

    def prepare(self) -> None:
        self._authority, self._files = self.doors.certificate(self.directory)

    def command(self) -> Sequence[str]:
        listeners = (
            f"--listen=TLS=SSL://127.0.0.1:{self.doors.tls_port}",
            f"--listen=LOGINS=SASL_PLAINTEXT://127.0.0.1:{self.doors.login_port}",
        )
        files = (f"--tls-certificate={self._files.certificate}", f"--tls-key={self._files.key}")
        return [*super().command(), *listeners, *files, *(f"--super-user={one}" for one in self.super_users)]

    @property
    def authority(self) -> str:
        return self._authority.file


class GuardedSemel(SecuredSemel):
    """What the clients of the plain listener may do is decided by the rules; the user with the password adds them."""

    super_users = (f"User:{USER}",)

    def prepare(self) -> None:
        super().prepare()
        command = [str(self.executable), "users", "add", USER, "--data", str(self.directory / "data")]
        added = subprocess.run(command, input=PASSWORD, capture_output=True, text=True, check=False)
        if added.returncode != 0:
            raise SkipReason(f"no user can be added: {added.stderr.strip()}")


class SecuredKafka(Kafka):
    def __init__(self) -> None:
        super().__init__()
        self.doors = _Doors()

    def prepare(self) -> None:
        authority, files = self.doors.certificate(self.directory)
        self._authority = authority
        key_store = self.directory / "broker-and-key.pem"
        key_store.write_text(Path(files.key).read_text() + Path(files.certificate).read_text())
        plain, map_name = f"PLAINTEXT://{self.bootstrap}", "listener.security.protocol.map"
        ours = f"TLS://127.0.0.1:{self.doors.tls_port},LOGINS://127.0.0.1:{self.doors.login_port}"
        self._properties |= {
            "listeners": f"{plain},{ours},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"{plain},{ours}",
            map_name: f"{SERVER_PROPERTIES[map_name]},TLS:SSL,LOGINS:SASL_PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_store),
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": CIPHER,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.logins.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(SUPER_USERS),
        }
        super().prepare()

    @property
    def authority(self) -> str:
        return self._authority.file


def over_tls(broker: Broker) -> str:
    """The address for clients that speak TLS, as `bench.clients.reached` reads it."""
    assert isinstance(broker, SecuredSemel | SecuredKafka)
    return f"ssl:{broker.authority}@127.0.0.1:{broker.doors.tls_port}"


def with_logins(broker: Broker) -> str:
    """The address for clients that log in."""
    assert isinstance(broker, SecuredSemel | SecuredKafka)
    return f"127.0.0.1:{broker.doors.login_port}"
