"""The address of the metrics has a login and TLS of its own, and tells nothing to those who have no password."""

import base64
import socket
import ssl
from pathlib import Path

import pytest

from asking_over_tls import tls_socket
from semel.testing.certificates import Authority
from semel.testing.served import ServedBroker
from semel_command import semel_failure

LOGIN = "prometheus:planted-5ecret: with a colon"


def answer(connected: socket.socket, path: str, login: str | None) -> str:
    """The head of the answer; of a stream, its beginning."""
    header = "" if login is None else f"Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n"
    with connected:
        connected.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connected.recv(65_536)
            assert piece, received
            received += piece
    return received.partition(b"\r\n\r\n")[0].decode()


def test_who_has_the_password_is_answered_and_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", "localhost")
    file, log = tmp_path / "login", tmp_path / "security.log"
    file.write_text(LOGIN + "\n")
    tls = (f"--tls-certificate={certificate}", f"--tls-key={key}")
    # A client of the metrics shows no certificate, whatever the listeners ask for.
    mutual = ("--tls-client-auth=required", f"--tls-client-authority={authority.file}")
    options = ("--listen=SSL://localhost:0", *tls, *mutual, f"--metrics-login-file={file}", f"--security-log={log}")
    with ServedBroker(tmp_path / "data", *options, "--metrics=https://localhost:0") as broker:
        assert broker.metrics_address is not None
        address = broker.metrics_address.removeprefix("https://")

        def ask(path: str, login: str | None) -> str:
            return answer(tls_socket(address, authority), path, login)

        for path in ("/metrics", "/decisions", "/elsewhere"):
            for login in (None, "prometheus:", LOGIN + "x", LOGIN.upper()):
                refused = ask(path, login)
                assert refused.startswith("HTTP/1.1 401 ")
                assert 'WWW-Authenticate: Basic realm="semel"' in refused
        assert ask("/metrics", LOGIN).startswith("HTTP/1.1 200 ")
        assert ask("/decisions", LOGIN).startswith("HTTP/1.1 200 ")
        assert ask("/elsewhere", LOGIN).startswith("HTTP/1.1 404 ")
        with pytest.raises(ssl.SSLError):
            tls_socket(address, Authority(tmp_path / "stranger"))
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert not plain.recv(65_536).startswith(b"HTTP")
        assert ask("/metrics", LOGIN).startswith("HTTP/1.1 200 ")
        assert "planted" not in broker.output + Path(f"/proc/{broker.process_id}/cmdline").read_text()
    told = log.read_text()
    assert told.count('"login_refused"') == 12
    assert "planted" not in told


@pytest.mark.parametrize(
    ("options", "content", "told"),
    [
        (("--metrics=0.0.0.0:0",), "a:b", "the password can be read on the way: write https://0.0.0.0:0"),
        (("--metrics=127.0.0.1:0",), "no password", "the first line has to be NAME:PASSWORD"),
        (("--metrics=127.0.0.1:0",), ":b", "the first line has to be NAME:PASSWORD"),
        (("--metrics=127.0.0.1:0",), None, "No such file"),
        (("--metrics=https://127.0.0.1:0",), "a:b", "needs --tls-certificate"),
        ((), "a:b", "--metrics-login-file is given without --metrics"),
    ],
)
def test_a_door_that_cannot_be_is_refused_in_one_line(
    options: tuple[str, ...], content: str | None, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "login"
    if content is not None:
        file.write_text(content)
    failure = semel_failure("serve", f"--data={tmp_path / 'data'}", f"--metrics-login-file={file}", *options)
    assert told in failure
