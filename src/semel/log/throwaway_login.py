"""Makes the certificates and the user for a test broker whose clients log in; programs have it from
`semel.testing.security`.
"""

import secrets
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from semel.log.broker.broker import Broker
from semel.log.broker.certificates import ClientAuth, TlsSettings
from semel.log.core.users import ITERATIONS_MIN
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.wire.scram import SALT_BYTES, Mechanism, credential_of, salted

USER: Final = "tester"
# The user is the common name of the certificate.
_PRINCIPAL_RULES: Final = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"


@dataclass(frozen=True)
class Login:
    """The login of a client; None for parts that the protocol does not need. Files are PEM."""

    protocol: str
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    # The file of the authority that signed the broker's certificate.
    authority: str | None = None
    # The client's own certificate and its key.
    certificate: str | None = None
    key: str | None = None


class Security:
    """The listener, the certificates and the first user of one broker."""

    def __init__(self, protocol: str) -> None:
        """`protocol` is one of Kafka's: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. ValueError if it is none of them.

        With SSL a client has to show a certificate.
        """
        if protocol not in list(SecurityProtocol):
            raise ValueError(f"{protocol!r} is not a protocol of a listener: choose {', '.join(SecurityProtocol)}")
        chosen = SecurityProtocol(protocol)
        self.settings: dict[str, Any] = {"listeners": [Listener(chosen, chosen)]}
        if chosen is not SecurityProtocol.PLAINTEXT:
            self.settings["super_users"] = [f"User:{USER}"]
        parts: dict[str, str] = {}
        if chosen.uses_sasl:
            parts |= {"mechanism": Mechanism.SCRAM_SHA_512.sasl_name, "user": USER}
            parts["password"] = secrets.token_urlsafe()
        if chosen.uses_tls:
            parts |= self._certified(by_certificate=not chosen.uses_sasl)
        self.login = Login(chosen.value, **parts)

    def _certified(self, by_certificate: bool) -> dict[str, str]:
        """Make the files of the broker and set its TLS; returns the files of a client."""
        from semel.log.throwaway_certificates import Authority

        directory = tempfile.mkdtemp(prefix="semel-certificates-")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        authority = Authority(Path(directory))
        broker = authority.issue("broker", "localhost", "127.0.0.1")
        if not by_certificate:
            self.settings["tls"] = TlsSettings(*broker)
            return {"authority": authority.file}
        client = authority.issue(USER)
        self.settings["tls"] = TlsSettings(
            *broker,
            client_auth=ClientAuth.REQUIRED,
            client_authority=authority.file,
            principal_rules=_PRINCIPAL_RULES,
        )
        return {"authority": authority.file, "certificate": client.certificate, "key": client.key}

    async def begin(self, broker: Broker) -> None:
        """Add the user to a broker that has started."""
        if self.login.user is not None and self.login.password is not None:
            add_user(broker, self.login.user, self.login.password)

    @property
    def client_settings(self) -> dict[str, str]:
        """The login, as settings of librdkafka without an address."""
        login = self.login
        if login.protocol == SecurityProtocol.PLAINTEXT:
            return {}
        named = {
            "security.protocol": login.protocol,
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
            "ssl.ca.location": login.authority,
            "ssl.certificate.location": login.certificate,
            "ssl.key.location": login.key,
        }
        return {name: value for name, value in named.items() if value is not None}


def add_user(broker: Broker, user: str, password: str, *mechanisms: Mechanism) -> None:
    """Let a user log in by these SCRAM mechanisms, or by all, and by PLAIN. Call it in the broker's event loop; the
    user is durable a moment later.
    """
    for mechanism in mechanisms or Mechanism:
        salt = secrets.token_bytes(SALT_BYTES)
        credential = credential_of(mechanism, salted(mechanism, password, salt, ITERATIONS_MIN), salt, ITERATIONS_MIN)
        broker.runtime.commit(broker.log.state.users.decide_set(user, mechanism, credential))
    broker.pump.sync_soon()
