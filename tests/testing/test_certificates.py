"""Strict clients accept what `semel.testing.certificates` issues, and what the guide has a reader make."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from semel.testing.certificates import Authority, Files

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/secure.md").read_text(encoding="utf-8")


def shakes_hands(authority: str, server: Files, client: Files | None, name: str) -> str:
    """The version of TLS on which a strict client and a strict server agree, each of which verifies the other. Python
    verifies strictly by itself from 3.13 on."""
    at_client = ssl.create_default_context(cafile=authority)
    at_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    at_server.load_cert_chain(*server)
    if client is not None:
        at_client.load_cert_chain(*client)
        at_server.verify_mode = ssl.CERT_REQUIRED
    for context in (at_client, at_server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [at_client.wrap_bio(down, up, server_hostname=name), at_server.wrap_bio(up, down, server_side=True)]
    waiting = list(ends)
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    return str(ends[0].version())


def test_a_strict_client_and_a_strict_broker_accept_each_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    broker, client = authority.issue("broker", "localhost", "127.0.0.1"), authority.issue("orders")
    assert shakes_hands(authority.file, broker, client, "localhost") == "TLSv1.3"
    assert shakes_hands(authority.file, broker, client, "127.0.0.1") == "TLSv1.3"


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    mine, other = Authority(tmp_path / "mine"), Authority(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shakes_hands(mine.file, other.issue("broker", "localhost"), None, "localhost")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, whose commands the guide shows")
def test_strict_clients_accept_what_the_guide_has_one_make(tmp_path: Path) -> None:
    for block in re.findall(r"^```\n(openssl .*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        subprocess.run(["sh", "-e", "-c", block], cwd=tmp_path, check=True, capture_output=True)
    broker, client = (
        Files(*(str(tmp_path / f"{name}.{kind}") for kind in ("pem", "key"))) for name in ("broker", "orders")
    )
    assert shakes_hands(str(tmp_path / "authority.pem"), broker, client, "log.example.org") == "TLSv1.3"
