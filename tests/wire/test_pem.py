"""Whatever is wrong with the files of a certificate and its key, one line says which of them, and what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from semel.client.connection import _tls
from semel.client.errors import AuthenticationFailed
from semel.client.settings import ClientSettings
from semel.log.broker.certificates import Certificates, CertificatesRefused, ClientAuth, TlsSettings
from semel.testing.certificates import Authority, Files

PLACES = ("certificate", "key", "authority")
NO_CERTIFICATE, NO_KEY = "the certificate is missing or cut off", "the private key is missing or cut off"
IN_PLACE_OF = {"certificate": NO_CERTIFICATE, "key": NO_KEY, "authority": "there is no certificate in it"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Files]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return authority, authority.issue("localhost")


@pytest.fixture
def paths(whole: tuple[Authority, Files], tmp_path: Path) -> dict[str, Path]:
    """A copy of each file, which the test may damage."""
    authority, files = whole
    copies = {place: tmp_path / f"{place}.pem" for place in PLACES}
    for place, file in zip(PLACES, (*files, authority.file), strict=True):
        copies[place].write_bytes(Path(file).read_bytes())
    return copies


def refusals(paths: dict[str, Path]) -> list[str]:
    """What a broker and a client say to these files."""
    certificate, key, authority = (str(paths[place]) for place in PLACES)
    broker = TlsSettings(certificate, key, client_auth=ClientAuth.REQUIRED, client_authority=authority)
    client = ClientSettings(
        (("localhost", 1),), ssl_ca_location=authority, ssl_certificate_location=certificate, ssl_key_location=key
    )
    with pytest.raises(CertificatesRefused) as by_broker:
        Certificates(broker)
    with pytest.raises(AuthenticationFailed) as by_client:
        _tls(client)
    return [str(by_broker.value), str(by_client.value)]


def damage(path: Path, kind: str) -> str | None:
    """Damage the file; returns what has to be said, or None for what this kind of file misses then."""
    content = path.read_bytes()
    path.unlink()
    if kind == "missing":
        return "No such file or directory"
    if kind == "a directory":
        path.mkdir()
        return "Is a directory"
    if kind == "a loop":
        path.symlink_to(path)
        return "Too many levels of symbolic links"
    path.write_bytes({"empty": b"", "zeroed": bytes(len(content)), "another kind": b"\xff\xfe" * 100}[kind])
    return None


@pytest.mark.parametrize("kind", ["missing", "a directory", "a loop", "empty", "zeroed", "another kind"])
@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_is_gone_empty_or_no_file_is_named(place: str, kind: str, paths: dict[str, Path]) -> None:
    said = damage(paths[place], kind)
    for line in refusals(paths):
        assert str(paths[place]) in line
        assert (said or IN_PLACE_OF[place]) in line
        assert "\n" not in line


@pytest.mark.parametrize("left", [0.5, 0.9])
@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_was_cut_off_is_told_from_one_that_does_not_fit(
    place: str, left: float, paths: dict[str, Path]
) -> None:
    os.truncate(paths[place], int(paths[place].stat().st_size * left))
    for line in refusals(paths):
        assert str(paths[place]) in line
        assert {**IN_PLACE_OF, "authority": "a part of it is cut off or damaged"}[place] in line


def test_a_damaged_file_shows_nothing_of_its_key(paths: dict[str, Path]) -> None:
    secret = paths["key"].read_text().splitlines()[1]
    paths["key"].write_text(paths["key"].read_text().replace(secret, secret[::-1]))
    for line in refusals(paths):
        assert "cannot be used for TLS: " in line
        assert secret[:10] not in line
