"""Files of properties for Java's clients and Kafka's console tools."""

from pathlib import Path
from typing import Final

from semel.testing.certificates import Authority, Files

_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_login(mechanism: str, user: str, password: str, protocol: str) -> dict[str, str]:
    user, password = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password))
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{_MODULES[mechanism]} required username="{user}" password="{password}";',
    }


def java_tls(authority: Authority, files: Files | None = None) -> dict[str, str]:
    """Trusts this authority, and shows this certificate; Java wants it and its key in one file."""
    trust = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
    }
    if files is None:
        return trust
    store = Path(files.certificate).with_suffix(".store.pem")
    store.write_bytes(Path(files.key).read_bytes() + Path(files.certificate).read_bytes())
    return {**trust, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}


def write_properties(path: Path, settings: dict[str, str]) -> str:
    """The name of the file, in which a backslash has to stand twice."""
    path.write_text("".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items()))
    return str(path)
