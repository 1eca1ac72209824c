"""What runs out is shown before it does: the space of the disk, and the time of certificates."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from semel.log.broker.broker import Broker
from semel.log.broker.certificates import Certificates, TlsSettings
from semel.log.broker.exposition import exposition
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.log.security.names import expiry_of
from semel.log.storage.space import space_at

EXPIRY = "semel_certificate_expiry_timestamp_seconds"
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(until: datetime) -> bytes:
    """As DER."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(until - timedelta(days=400)).not_valid_after(until).sign(KEY, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


def write(file: Path, *certificates: bytes) -> TlsSettings:
    """A file with a key and these certificates, the broker's own first."""
    key = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pems = [x509.load_der_x509_certificate(one).public_bytes(serialization.Encoding.PEM) for one in certificates]
    file.write_bytes(key + b"".join(pems))
    return TlsSettings(str(file))


def figure(broker: Broker, name: str) -> float | None:
    values = [line.split(" ")[1] for line in exposition(broker).splitlines() if line.startswith(f"{name} ")]
    return float(values[0]) if values else None


def seconds(year: int) -> int:
    return round(datetime.fromisoformat(f"{year}-06-01T12:30:15Z").timestamp())


@pytest.mark.parametrize("year", [2027, 2049, 2050, 2099], ids=str)
def test_a_certificate_says_when_it_expires(year: int) -> None:
    """Years from 2050 on have another form."""
    assert expiry_of(certificate(datetime(year, 6, 1, 12, 30, 15))) == seconds(year)


@pytest.mark.parametrize("garbage", [b"", b"\x30\x03\x02\x01\x01", b"\x30\x80", b"\x00" * 40])
def test_what_is_no_certificate_does_not_say_when_it_expires(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_of(garbage)


def test_the_certificate_of_a_chain_that_expires_first_counts(tmp_path: Path) -> None:
    chain = [certificate(datetime(year, 6, 1, 12, 30, 15)) for year in (2040, 2030, 2035)]
    assert Certificates(write(tmp_path / "broker.pem", *chain)).expires_at == seconds(2030)


async def test_the_metrics_say_when_the_certificate_expires_and_its_successor(tmp_path: Path) -> None:
    file = tmp_path / "broker.pem"
    tls = write(file, certificate(datetime(2040, 6, 1, 12, 30, 15)))
    async with Broker(listeners=[Listener(protocol=SecurityProtocol.SSL)], tls=tls, insecure=True) as broker:
        assert figure(broker, EXPIRY) == seconds(2040)
        write(file, certificate(datetime(2041, 6, 1, 12, 30, 15)))
        broker.doors.look_at_credentials()
        assert figure(broker, EXPIRY) == seconds(2041)


async def test_the_metrics_say_how_much_of_the_disk_is_free(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        free, size = figure(broker, "semel_disk_free_bytes"), figure(broker, "semel_disk_bytes")
    assert free is not None
    assert size is not None
    about = os.statvfs(tmp_path)
    assert 0 < free <= about.f_bfree * about.f_frsize + size / 10, "others write to it, too"
    assert size == about.f_blocks * about.f_frsize


async def test_what_a_broker_does_not_have_is_not_shown() -> None:
    async with Broker() as broker:
        shown = [figure(broker, name) for name in ("semel_disk_free_bytes", "semel_disk_bytes", EXPIRY)]
    assert shown == [None, None, None]


def test_a_disk_that_does_not_tell_has_no_space_to_show(tmp_path: Path) -> None:
    assert space_at(tmp_path / "missing") is None
