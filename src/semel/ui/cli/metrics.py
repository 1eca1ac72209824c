"""The options of `semel serve` for its metrics: the address, the login, and TLS.

The password comes from a file, and never from the command line, where every process on the machine could read it.
"""

import argparse
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from semel.ui.cli.addresses import listening_address
from semel.ui.cli.errors import Failure
from semel.ui.cli.password_file import password_in
from semel.wire.basic import BasicLogin
from semel.wire.hosts import is_loopback, shown_address

if TYPE_CHECKING:
    import asyncio

    from semel.log.brokers import Broker

OVER_TLS: Final = "https://"


class MetricsDoor(NamedTuple):
    """Where the metrics are served."""

    host: str
    port: int
    over_tls: bool
    # The login of its clients; None if they need none.
    login: BasicLogin | None

    async def open(self, broker: "Broker", *, insecure: bool) -> "asyncio.Server":
        """Serve the metrics; OSError if the port is not free."""
        from semel.log.brokers import serve_metrics

        tls: Callable[[], ssl.SSLContext] | None = broker.doors.tls_context if self.over_tls else None
        return await serve_metrics(broker, self.host, self.port, login=self.login, tls=tls, insecure=insecure)

    def shown(self, port: int) -> str:
        """The address with the port that it got."""
        return (OVER_TLS if self.over_tls else "") + shown_address(self.host, port)


def add_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics",
        metavar="[https://]HOST:PORT",
        help="serve /metrics in Prometheus' text format here, and /decisions, a stream of the verdicts on batches; "
        "port 0 picks a free one; https:// uses the certificate of --tls-certificate",
    )
    parser.add_argument(
        "--metrics-login-file",
        metavar="FILE",
        help="clients of the metrics have to log in with the name and the password in this file's first line, "
        "NAME:PASSWORD",
    )


def metrics_of(options: argparse.Namespace) -> MetricsDoor | None:
    """Where to serve the metrics; None if the user did not ask for them."""
    if not options.metrics:
        if options.metrics_login_file is not None:
            raise Failure("--metrics-login-file is given without --metrics")
        return None
    over_tls = options.metrics.startswith(OVER_TLS)
    if over_tls and options.tls_certificate is None:
        raise Failure(f"--metrics {options.metrics} needs --tls-certificate")
    host, port = listening_address(options.metrics.removeprefix(OVER_TLS))
    login = login_in(options.metrics_login_file)
    if login is not None and not (over_tls or is_loopback(host) or options.insecure):
        raise Failure(
            f"--metrics {options.metrics} is not encrypted, and the password can be read on the way: write "
            f"{OVER_TLS}{options.metrics}, or pass --insecure if you trust the network"
        )
    return MetricsDoor(host, port, over_tls, login)


def login_in(file: str | None) -> BasicLogin | None:
    """The login in a file's first line; None without a file."""
    if file is None:
        return None
    name, _, password = password_in(file).partition(":")
    if not (name and password):
        raise Failure(f"{file}: the first line has to be NAME:PASSWORD")
    return BasicLogin(name, password)
