"""What `semel users` promises: the first user is made before any broker runs, and what was made survives kill -9."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forked import SECONDS_MAX
from secured import PASSWORD, WRONG, by_semel, login
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed
from semel.client.settings import from_options
from semel.testing.served import ServedBroker
from semel.ui.cli.data_directory import check_directory
from semel.ui.cli.errors import Failure
from semel_command import semel, semel_failure, semel_lines

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def add(name: str, *options: str, password: str = PASSWORD) -> list[str]:
    return semel_lines("users", "add", name, *options, stdin=password + "\n")


def test_the_first_user_is_made_offline_and_others_by_the_broker_that_runs(tmp_path: Path) -> None:
    data = f"--data={tmp_path / 'data'}"
    assert add("admin", data, "--iterations=4096") == ["user admin can log in by SCRAM-SHA-256, SCRAM-SHA-512"]
    logins = "--listen=LOGINS=SASL_PLAINTEXT://127.0.0.1:0"
    with ServedBroker(tmp_path / "data", logins, "--super-user=User:ANONYMOUS") as broker:
        address = broker.addresses.rpartition("//")[2]
        bootstrap = f"--bootstrap={broker.bootstrap}"
        assert add("app", bootstrap, "--mechanism=SCRAM-SHA-512") == ["user app can log in by SCRAM-SHA-512"]
        broker.kill()
        broker.start()
        address = broker.addresses.rpartition("//")[2]
        bootstrap = f"--bootstrap={broker.bootstrap}"
        for mechanism in MECHANISMS:
            assert by_semel(address, login(mechanism, "admin", PASSWORD)) == "written"
            assert by_semel(address, login(mechanism, "admin", WRONG)) == "AuthenticationFailed"
        assert by_semel(address, login("SCRAM-SHA-512", "app", PASSWORD)) == "written"
        assert by_semel(address, login("SCRAM-SHA-256", "app", PASSWORD)) == "AuthenticationFailed"
        header, *rows = semel_lines("users", "list", bootstrap)
        assert [row.split() for row in rows] == [
            ["admin", "SCRAM-SHA-256,", "SCRAM-SHA-512", "4096,", "4096"],
            ["app", "SCRAM-SHA-512", "8192"],
        ]
        assert "in use by a broker" in semel_failure("users", "list", data)
        add("app", bootstrap, password="another")
        assert by_semel(address, login("SCRAM-SHA-512", "app", PASSWORD)) == "AuthenticationFailed"
        assert semel_lines("users", "remove", "app", bootstrap) == ["removed app"]
        assert by_semel(address, login("SCRAM-SHA-512", "app", "another")) == "AuthenticationFailed"
        assert semel_failure("users", "remove", "app", bootstrap) == "there is no user 'app'"
    assert [row.split()[0] for row in semel_lines("users", "list", data)] == ["USER", "admin"]
    assert semel_lines("users", "remove", "admin", data) == ["removed admin"]
    assert [line.split() for line in semel_lines("users", "list", data)] == [header.split()]


def test_the_first_user_of_a_store_comes_with_a_log_that_is_moved_there(tmp_path: Path) -> None:
    store, first, cache = f"file://{tmp_path}/store", tmp_path / "first", tmp_path / "cache"
    add("admin", f"--data={first}", "--iterations=4096")
    refused = semel_failure("serve", f"--data={first}", f"--store={store}", "--listen=127.0.0.1:0")
    assert f"semel move --from {first} --to {store}" in refused
    semel_lines("move", f"--from={first}", f"--to={store}")
    logins = "--listen=LOGINS=SASL_PLAINTEXT://127.0.0.1:0"
    with ServedBroker(cache, logins, f"--store={store}", "--super-user=User:ANONYMOUS") as broker:
        address = broker.addresses.rpartition("//")[2]
        assert by_semel(address, login("SCRAM-SHA-512", "admin", PASSWORD)) == "written"
        assert by_semel(address, login("SCRAM-SHA-512", "admin", WRONG)) == "AuthenticationFailed"
    told = semel_failure("users", "add", "app", f"--data={first}", stdin=f"{PASSWORD}\n")
    assert "cache" in told
    assert "--bootstrap" in told
    assert "--store URL" in semel_failure("serve", f"--data={first}", "--listen=127.0.0.1:0")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("users", "add", "admin", "--data"), "semel move --from DIR --to "),
        (("users", "remove", "admin", "--data"), "semel move --from DIR --to "),
        (("users", "list", "--data"), "semel move --from DIR --to "),
        (("serve", "--data"), "--store "),
        (("lab", "--data"), "a lab has no store"),
        (("doctor", "--data"), "semel doctor "),
    ],
)
@pytest.mark.parametrize("url", ["file:///srv/semel", "s3://bucket/prefix"])
def test_the_url_of_a_store_is_no_directory_and_none_is_made_for_it(
    words: tuple[str, ...], remedy: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = semel_failure(*words, url)
    assert refused.startswith(f"--data {url}: this is the URL of a store")
    assert remedy in refused
    assert list(tmp_path.iterdir()) == []


def test_the_url_of_a_store_is_told_from_a_directory_with_a_colon() -> None:
    check_directory("./data:old", "")
    with pytest.raises(Failure, match="this is the URL of a store, and --data takes a directory; use --store"):
        check_directory("file:///srv/semel", "use --store")


def test_a_password_comes_from_a_file_and_never_from_the_command_line(tmp_path: Path) -> None:
    data, file = f"--data={tmp_path / 'data'}", tmp_path / "password"
    file.write_text(PASSWORD + "\nmore\n")
    semel_lines("users", "add", "admin", data, f"--password-file={file}")
    for option in (f"--password={PASSWORD}", PASSWORD):
        told = semel("users", "add", "admin", data, option)
        assert told.returncode == 2
    assert "No such file" in semel_failure("users", "add", "admin", data, "--password-file=/nowhere")
    assert "the password is empty" in semel_failure("users", "add", "admin", data, stdin="\n")
    file.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in semel_failure("users", "add", "admin", data, f"--password-file={file}")


@pytest.mark.parametrize("iterations", ["0", "4095", "16385"])
def test_iterations_that_are_too_few_or_too_many_are_refused(iterations: str, tmp_path: Path) -> None:
    semel_failure_text = semel("users", "add", "a", f"--data={tmp_path}", f"--iterations={iterations}", stdin="p\n")
    assert semel_failure_text.returncode != 0
    assert "Traceback" not in semel_failure_text.stderr


STRANGE_NAMES = [
    "alice\nroot  SCRAM-SHA-512  16384",
    "\x1b[2J\x1b]0;title\x07",
    "\u202egro.live",
    "a\u2028b\u0085c\rd",
    "a" * 1_000,
    "=2C,=3D",
    "a \t b",
    "ἀγορά 🔑",
]


def test_a_user_of_any_name_logs_in_and_stands_in_one_line_of_a_command_and_of_the_security_log(
    tmp_path: Path,
) -> None:
    log = tmp_path / "security.log"
    for name in STRANGE_NAMES:
        add(name, f"--data={tmp_path / 'data'}", "--iterations=4096", "--mechanism=SCRAM-SHA-256")
    logins = ("--listen=LOGINS=SASL_PLAINTEXT://127.0.0.1:0", "--super-user=User:ANONYMOUS", f"--security-log={log}")
    with ServedBroker(tmp_path / "data", *logins) as broker:
        address, bootstrap = broker.addresses.rpartition("//")[2], f"--bootstrap={broker.bootstrap}"
        for name in STRANGE_NAMES:
            with pytest.raises(AuthenticationFailed):
                _ask(address, name, WRONG)
            # It is let in, and may see nothing.
            assert _ask(address, name, PASSWORD) == {}
            semel_lines("acls", "add", f"User:{name}", "read", "topic:orders", bootstrap)
            semel_lines("quotas", "set", f"user:{name}", "producer_byte_rate=1000000", bootstrap)
        tables = [semel_lines(command, "list", bootstrap) for command in ("users", "acls", "quotas")]
        assert all(line.isprintable() for table in tables for line in table)
        assert [len(table) for table in tables] == [len(STRANGE_NAMES) + 1] * 3
        assert broker.output.isascii() or broker.output.replace("\n", "").isprintable()
    told = [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]
    assert [one["user"] for one in told if one["event"] == "login_refused"] == STRANGE_NAMES
    assert log.read_text().isascii()


def _ask(address: str, user: str, password: str) -> object:
    options = {f"kafka.{key}": value for key, value in login("SCRAM-SHA-256", user, password).items()}
    with Cluster(from_options({"kafka.bootstrap.servers": address, **options})) as cluster:
        return cluster.every_topic()


@pytest.mark.parametrize("words", [("users", "add"), ("users", "remove")])
def test_a_name_that_is_not_utf_8_is_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    told = semel_failure(*words, "\udcff\udcfe", f"--data={tmp_path / 'data'}", stdin="secret\n")
    assert "is not UTF-8" in told or "there is no user" in told


def test_no_password_and_no_key_is_in_the_directory_or_in_what_dump_shows(tmp_path: Path) -> None:
    data = tmp_path / "data"
    add("admin", f"--data={data}")
    stored = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in stored
    shown = subprocess.run(
        [sys.executable, "-m", "semel", "dump", str(data), "--journal"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    ).stdout
    assert "UserCredentialSet user=admin mechanism=1 salt=(hidden) stored_key=(hidden)" in shown
