"""A secret that was planted is in no error of a command, in no traceback, and in nothing that is pickled without need.

What logs, command lines, plans of Spark and checkpoints show is looked at where each of them is tested: every command
and the broker in tests/ui/cli/test_command_config.py, the application kit in test_kit_logs_in.py, Spark in
tests/spark/test_logging_in.py.
"""

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from secured import SecuredBroker, login
from semel.audit import AuditFailed, audit
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed
from semel.client.settings import ClientSettings, SettingsRefused, from_options
from semel.log.broker.certificates import TlsSettings
from semel.ui.cli import main

Semel = Callable[..., str]

SECRET = "planted-5ecret"
# Nobody listens at the port.
DATABASE = f"postgresql://app:{SECRET}@127.0.0.1:1/shop?connect_timeout=5"

COMMANDS = {
    "outbox": ("outbox", "quarantine", "list"),
    "inbox": ("inbox", "quarantine", "list"),
    "http": ("http", "reap"),
    "schema": ("schema",),
}


@pytest.fixture
def semel(capsys: pytest.CaptureFixture[str]) -> Semel:
    """Runs a command that fails, and returns what it says."""

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code not in (0, None)
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_warns_of_a_password_in_the_url_of_a_database_and_does_not_repeat_it(
    command: str, semel: Semel
) -> None:
    said = semel(*COMMANDS[command], "--database", DATABASE)
    assert "every process on this machine can read the password in the URL of the database" in said
    assert SECRET not in said
    without = semel(*COMMANDS[command], "--database", DATABASE.replace(f":{SECRET}", ""))
    assert "can read the password" not in without


@pytest.mark.parametrize(
    "url",
    [
        f"nothing://app:{SECRET}@host/shop",
        f"postgresql://app:{SECRET}@host:port/shop",
        f"postgresql:/app:{SECRET}@host",
        f"postgresql+nothing://app:{SECRET}@host/shop",
        f"oracle://app:{SECRET}@host/shop",
        f"parquet://app:{SECRET}@host/shop",
        f"sqlite://app:{SECRET}@host/shop",
    ],
)
@pytest.mark.parametrize("command", ["schema", "console", "audit"])
def test_a_url_that_cannot_be_used_is_refused_without_its_password(
    command: str, url: str, tmp_path: Path, semel: Semel
) -> None:
    words = {
        "schema": ("schema", "--database", url),
        "console": ("console", "--listen=127.0.0.1:0", "--database", url),
        "audit": ("audit", "--source", f"{url}/orders?id=id", "--sink", f"sqlite:{tmp_path}/sink.db/orders?id=id"),
    }[command]
    assert SECRET not in semel(*words)


def test_a_url_of_sqlite_with_two_slashes_is_refused_in_one_line(semel: Semel) -> None:
    assert semel("schema", "--database", "sqlite://shop.db") == (
        "semel: a URL of SQLite has three slashes before its file, and no host: write sqlite:///FILE\n"
    )


@pytest.mark.parametrize("url", ["postgresql://host/shop?password=x", "postgresql://host/shop?a=b&password=x"])
def test_a_password_among_the_parameters_of_a_url_is_warned_of(url: str, semel: Semel) -> None:
    assert "can read the password" in semel("schema", "--check", "--database", url.replace("host", "127.0.0.1:1"))


def test_an_audit_warns_of_a_password_in_an_address_too(tmp_path: Path, semel: Semel) -> None:
    words = ("audit", "--source", f"postgresql://app:{SECRET}@127.0.0.1:1/shop/orders?id=id")
    said = semel(*words, "--sink", f"sqlite:{tmp_path}/sink.db/orders?id=id")
    assert "every process on this machine can read the password in the URL of the database" in said
    assert SECRET not in said


def settings_of(**more: str) -> ClientSettings:
    options = login("SCRAM-SHA-256", "alice", SECRET) | {"bootstrap.servers": "127.0.0.1:1"} | more
    return from_options({f"kafka.{name}": value for name, value in options.items()})


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.jaas.config": SECRET},
        {"sasl.jaas.config": f'ScramLoginModule required username="a" password="{SECRET}"', "sasl.password": SECRET},
        {"sasl.mechanism": "GSSAPI"},
        {"security.protocol": "PLAINTEXT"},
        {"ssl.key.password": SECRET, "ssl.truststore.type": "JSK"},
        {"ssl.truststore.location": "a.jks"},
    ],
)
def test_settings_that_are_refused_show_no_password(options: dict[str, str]) -> None:
    with pytest.raises(SettingsRefused) as refused:
        settings_of(**options)
    error = refused.value
    shown = "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(error)


def test_a_refused_login_and_a_verdict_leave_no_password_in_what_is_pickled(tmp_path: Path) -> None:
    with SecuredBroker() as broker:
        broker.add_user("alice", SECRET)
        broker.create_topic("orders")
        right = login("SCRAM-SHA-256", "alice", SECRET)
        wrong = login("SCRAM-SHA-256", "alice", SECRET + "x")
        kept: list[Any] = []
        topic, sink = f"semel://{broker.bootstrap}/orders?id=key", f"sqlite:{tmp_path}/none/t?id=id"
        given = {f"kafka.{name}": value for name, value in (wrong | {"bootstrap.servers": broker.bootstrap}).items()}
        work: list[Callable[[], object]] = [
            lambda: audit(topic, sink, client=right),
            lambda: audit(topic, sink, client=wrong),
            lambda: Cluster(from_options(given)).every_topic(),
        ]
        for one in work:
            with pytest.raises((AuditFailed, AuthenticationFailed)) as raised:
                one()
            kept.append(raised.value)
    for one in kept:
        assert SECRET.encode() not in pickle.dumps(one)
        assert SECRET not in "".join(traceback.format_exception(one))


def test_no_settings_show_a_password_where_they_are_printed() -> None:
    assert SECRET not in repr(settings_of(**{"ssl.key.password": SECRET}))
    assert SECRET not in repr(TlsSettings("broker.pem", key_password=SECRET))
