"""The options of `semel serve` for TLS, with one line for each error.

The password of a key comes from a file or from the environment, and never from the command line, where every process on
the machine could read it.
"""

import argparse
import os
from typing import TYPE_CHECKING, Final

from semel.ui.cli.errors import Failure
from semel.ui.cli.password_file import password_in

if TYPE_CHECKING:
    from semel.log.brokers import TlsSettings

KEY_PASSWORD: Final = "SEMEL_TLS_KEY_PASSWORD"
_CLIENT_AUTH: Final = ("none", "requested", "required")


def add_tls(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tls-certificate", metavar="FILE", help="the broker's certificate and those that signed it, as PEM")
    add("--tls-key", metavar="FILE", help="the key of the certificate, if it is not in the same file")
    add(
        "--tls-key-password-file",
        metavar="FILE",
        help=f"the password of the key is the first line of this file (the environment's {KEY_PASSWORD})",
    )
    add(
        "--tls-client-auth",
        choices=_CLIENT_AUTH,
        default="none",
        help="whether clients show a certificate (none); `requested` lets in clients without one, as ANONYMOUS",
    )
    add("--tls-client-authority", metavar="FILE", help="the authorities that sign clients' certificates, as PEM")
    add(
        "--tls-principal-rules",
        default="DEFAULT",
        metavar="RULES",
        help="how a certificate's subject becomes a user, as Kafka's ssl.principal.mapping.rules (DEFAULT: as it is)",
    )


def tls_of(options: argparse.Namespace) -> "TlsSettings | None":
    """The settings of TLS; None if no certificate is named."""
    from semel.log.brokers import ClientAuth, TlsSettings

    if options.tls_certificate is None:
        for name in ("tls_key", "tls_key_password_file", "tls_client_authority"):
            if getattr(options, name) is not None:
                raise Failure(f"--{name.replace('_', '-')} is given without --tls-certificate")
        return None
    return TlsSettings(
        options.tls_certificate,
        options.tls_key,
        _key_password(options.tls_key_password_file),
        ClientAuth(options.tls_client_auth),
        options.tls_client_authority,
        options.tls_principal_rules,
    )


def _key_password(file: str | None) -> str | None:
    return os.environ.get(KEY_PASSWORD) if file is None else password_in(file)
