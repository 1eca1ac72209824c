"""Every command that connects can log in, by the same file that Kafka's own tools take, and shows no secret."""

import os
from pathlib import Path

import pytest

from secured import WRONG
from semel.testing.certificates import Authority
from semel.testing.served import ServedBroker
from semel_command import semel, semel_failure, semel_lines, started

SECRET = "planted-5ecret"


def config_of(path: Path, authority: Authority, password: str) -> Path:
    path.write_text(
        "\n".join(
            (
                "# as for kafka-topics.sh --command-config",
                "security.protocol=SASL_SSL",
                "sasl.mechanism=SCRAM-SHA-512",
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\",
                f'    username="admin" password="{password}";',
                f"ssl.truststore.location={authority.file}",
                "ssl.truststore.type=PEM",
            )
        )
    )
    return path


def test_every_command_logs_in_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    certificate, key = authority.issue("broker", "localhost")
    data = tmp_path / "data"
    semel_lines("users", "add", "admin", f"--data={data}", stdin=SECRET + "\n")
    options = ["--listen=SASL_SSL://localhost:0", f"--tls-certificate={certificate}", f"--tls-key={key}"]
    broker = ServedBroker(data, *options, "--super-user=User:admin", "--log-level=debug")
    with broker:
        address = broker.addresses.rpartition("//")[2]
        right = config_of(tmp_path / "client.conf", authority, SECRET)
        own = (f"--bootstrap={address}", f"--command-config={right}")
        semel_lines("topics", "create", "orders", *own)
        semel_lines("produce", "orders", *own, stdin="3 apples\n")
        assert "3 apples" in semel_lines("tail", "orders", *own)[0]
        for words in (["topics", "list"], ["groups", "list"], ["transactions", "list"], ["users", "list"]):
            assert semel_lines(*words, *own)
        wrong = config_of(tmp_path / "wrong.conf", authority, WRONG)
        told = semel_failure("topics", "list", f"--bootstrap={address}", f"--command-config={wrong}")
        assert "refused user 'admin'" in told
        assert WRONG not in told
        waiting = started("tail", "orders", "--follow", *own)
        assert SECRET not in Path(f"/proc/{waiting.pid}/cmdline").read_text()
        waiting.kill()
        waiting.communicate()
        assert SECRET not in Path(f"/proc/{broker.process_id}/cmdline").read_text()
        assert SECRET not in broker.output
        stored = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
        assert SECRET.encode() not in stored


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sasl.pasword=x", "setting sasl.pasword is not known; was sasl.password meant?"),
        ("security.protocol=SASL_SSL", "give sasl.username"),
        ("sasl.username=admin\nsasl.password=planted", "does not ask for SASL"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    failure = semel_failure("topics", "list", f"--command-config={file}")
    assert told in failure
    assert str(file) in failure
    assert "planted" not in failure


def test_a_file_that_cannot_be_read_is_named() -> None:
    assert "/nowhere: No such file" in semel_failure("topics", "list", "--command-config=/nowhere")


def test_a_file_with_the_settings_of_a_producer_and_a_consumer_is_refused(tmp_path: Path) -> None:
    """As `semel settings` prints it."""
    file = tmp_path / "client.json"
    file.write_text("\n".join(semel_lines("settings", "exactly-once", "--client=confluent", "--format=json")))
    told = semel_failure("topics", "list", f"--command-config={file}")
    assert told.startswith(f"{file}: its settings are for a producer and consumer; a command takes those")


def test_the_password_of_a_key_comes_from_a_file_or_from_the_environment(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", "localhost", key_password=SECRET)
    file = tmp_path / "password"
    file.write_text(SECRET + "\n")
    options = ("--listen=SSL://localhost:0", f"--tls-certificate={certificate}", f"--tls-key={key}")
    told = semel("serve", f"--data={tmp_path / 'data'}", *options)
    assert told.returncode == 1
    assert "the key is encrypted, and the password is missing or wrong" in told.stderr
    with ServedBroker(tmp_path / "data", *options, f"--tls-key-password-file={file}"):
        pass
    environment = {**os.environ, "SEMEL_TLS_KEY_PASSWORD": SECRET}
    with ServedBroker(tmp_path / "data", *options, environment=environment):
        pass
