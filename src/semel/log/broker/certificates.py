"""The certificates of the broker: read from files, checked, and read again when the files change.

At the start, files that cannot be used stop the broker with a message of one line. Later, the broker logs the reason
and goes on with the certificates that it has. Open connections keep the certificates they began with. This file must
never put the password of a key into an error.
"""

import os
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from semel.log.core.access import ANONYMOUS, USER, Principal
from semel.log.security.names import expiry_of, rules_of, subject_of
from semel.wire.pem import why_refused

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class ClientAuth(StrEnum):
    """Whether clients must show a certificate, as `ssl.client.auth` of Apache Kafka."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class CertificatesRefused(ValueError):
    """These files cannot be used for TLS; the message says which, and why."""


@dataclass(frozen=True)
class TlsSettings:
    """The files with the certificates, in PEM, and whether clients must show one."""

    certificate: str
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    client_auth: ClientAuth = ClientAuth.NONE
    client_authority: str | None = None
    principal_rules: str = "DEFAULT"

    @property
    def files(self) -> Sequence[str]:
        return [file for file in (self.certificate, self.key, self.client_authority) if file is not None]


class Certificates:
    """The certificates now in use."""

    def __init__(self, settings: TlsSettings) -> None:
        """CertificatesRefused if TLS is not possible with these settings."""
        self._settings = settings
        try:
            self._name_of: Callable[[str], str] = rules_of(settings.principal_rules)
        except ValueError as error:
            raise CertificatesRefused(str(error)) from None
        if settings.client_auth != ClientAuth.NONE and settings.client_authority is None:
            raise CertificatesRefused(
                "clients are asked for certificates, but no authority is named that may have signed them"
            )
        self._stamps = self._look()
        self._read()

    def has_changed(self) -> bool:
        """Whether a file has changed since it was last read."""
        return self._look() != self._stamps

    def read_again(self) -> None:
        """Read the files again, for new connections. After CertificatesRefused nothing has changed; the broker tries
        again when a file changes.
        """
        self._stamps = self._look()
        self._read()

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal that a client's certificate names. NoName or ValueError if it names none."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._name_of(subject_of(certificate)))

    def _read(self) -> None:
        context = _context(self._settings)
        # When the first certificate of the chain expires, in seconds since 1970; None if that cannot be read.
        self.expires_at = _expiry(Path(self._settings.certificate))
        # The metrics have their own login, and ask no client for a certificate.
        self.plain_context = _context(replace(self._settings, client_auth=ClientAuth.NONE, client_authority=None))
        self.context = context

    def _look(self) -> list[tuple[int, ...] | None]:
        """A value that changes when a file, or the right to read it, changes."""
        stamps: list[tuple[int, ...] | None] = []
        for file in self._settings.files:
            try:
                stat = os.stat(file)
                stamps.append((stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))
            except OSError:
                stamps.append(None)
        return stamps


def _expiry(file: Path) -> int | None:
    try:
        found = _CERTIFICATE.findall(file.read_text(encoding="ascii", errors="replace"))
        return min((expiry_of(ssl.PEM_cert_to_DER_cert(one)) for one in found), default=None)
    except (OSError, ValueError):
        # OpenSSL has read the file, but only it knows this form.
        return None


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    contents = {}
    for file in settings.files:
        try:
            contents[file] = Path(file).read_bytes()
        except OSError as error:
            raise CertificatesRefused(f"{file}: {error.strerror}") from None
    # From here on an OSError also says that a file has been removed since.
    try:
        # The password is empty and not None, because OpenSSL would otherwise ask for one at the terminal.
        context.load_cert_chain(settings.certificate, settings.key, settings.key_password or "")
    except (OSError, ValueError) as error:
        files = " and ".join(dict.fromkeys((settings.certificate, settings.key or settings.certificate)))
        reason = why_refused(error, contents[settings.certificate], contents[settings.key or settings.certificate])
        raise CertificatesRefused(f"{files} cannot be used for TLS: {reason}") from None
    if settings.client_authority is not None:
        try:
            context.load_verify_locations(settings.client_authority)
        except (OSError, ValueError) as error:
            raise CertificatesRefused(f"{settings.client_authority} holds no authority: {why_refused(error)}") from None
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }[settings.client_auth]
    return context
