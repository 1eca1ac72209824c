"""What `semel users` promises: the first user is made before any broker runs, and what was made survives kill -9."""

import subprocess
import sys
from pathlib import Path

import pytest

from secured import PASSWORD, WRONG, by_semel, login
from semel.testing.served import ServedBroker
from semel_command import SECONDS_MAX, semel, semel_failure, semel_lines

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
