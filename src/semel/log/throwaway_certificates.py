"""Certificates for tests, signed by an authority that nobody else trusts; programs have them from
`semel.testing.certificates`.

The package `cryptography` is imported here and nowhere else in semel. The keys are unencrypted in the directory that
the test names, so this file must only be used for tests.
"""

import importlib.util
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

if importlib.util.find_spec("cryptography") is None:
    raise ImportError("semel.testing.certificates needs cryptography, which is missing: pip install 'semel[testing]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID: timedelta = timedelta(days=2)


class Files(NamedTuple):
    """The paths of a certificate and its key, as PEM."""

    certificate: str
    key: str


class Authority:
    """Signs certificates; `file` is the certificate that clients trust."""

    def __init__(self, directory: Path, name: str = "semel tests") -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._begun(self._name, self._key.public_key(), timedelta())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = str(directory / f"{name.replace(' ', '-')}.pem")
        Path(self.file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *hosts: str,
        subject: x509.Name | None = None,
        key_password: str | None = None,
        expired: bool = False,
    ) -> Files:
        """A certificate for these hosts, with this common name or with the whole `subject`."""
        key = ec.generate_private_key(ec.SECP256R1())
        whole = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        since = -10 * _VALID if expired else timedelta()
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._begun(whole, key.public_key(), since)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            certificate = certificate.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        signed = certificate.sign(self._key, hashes.SHA256())
        files = Files(str(self._directory / f"{name}.pem"), str(self._directory / f"{name}.key"))
        Path(files.certificate).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        encryption = (
            serialization.NoEncryption()
            if key_password is None
            else serialization.BestAvailableEncryption(key_password.encode())
        )
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        Path(files.key).write_bytes(private)
        return files

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, since: timedelta) -> x509.CertificateBuilder:
        """With the identifiers of both keys, which a strict client asks for: Python's is one from 3.13 on."""
        begin = datetime.now(UTC) - timedelta(hours=1) + since
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(signer, critical=False)
        )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
