"""What `semel console` promises: an address that works, one line for what is wrong, and an end when it is asked to."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from semel_command import SECONDS_MAX, semel_failure, started


def test_other_machines_are_served_only_where_that_was_asked_for() -> None:
    assert "--insecure" in semel_failure("console", "--listen", "0.0.0.0:0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--decisions-login-file", "{file}"], "are for --decisions HOST:PORT"),
        (["--decisions", "127.0.0.1:1", "--decisions-authority", "{file}"], "write --decisions https://127.0.0.1:1"),
        (["--decisions", "broker:1", "--decisions-login-file", "{file}"], "can be read on the way"),
        (["--decisions", "https://broker:1", "--decisions-authority", "{file}"], "{file}: "),
        (["--decisions", "https://broker:1", "--decisions-authority", "/missing"], "/missing: No such file"),
    ],
)
def test_a_login_for_decisions_that_cannot_be_used_is_refused_in_one_line(
    options: list[str], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "login"
    file.write_text("console:planted-secret\n")
    file.chmod(0o600)
    failure = semel_failure("console", *(option.format(file=file) for option in options))
    assert message.format(file=file) in failure
    assert "planted-secret" not in failure


@pytest.mark.slow
def test_the_printed_address_opens_and_a_signal_ends_the_console() -> None:
    with started("console", "--listen", "127.0.0.1:0", "--bootstrap", "127.0.0.1:1") as console:
        assert console.stdout is not None
        address = console.stdout.readline().removeprefix("semel console on ").strip()
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as page:
            assert b"<main" in page.read()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address, timeout=SECONDS_MAX)
        console.send_signal(signal.SIGTERM)
        assert console.wait(SECONDS_MAX) == 0
        assert console.stderr is not None
        assert console.stderr.read() == ""


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_line() -> None:
    with started("console", "--listen", "127.0.0.1:0") as console:
        assert console.stdout is not None
        taken = console.stdout.readline().partition("://")[2].partition("/")[0]
        assert semel_failure("console", "--listen", taken).startswith(f"cannot listen on {taken}: ")
        console.send_signal(signal.SIGINT)
        assert console.wait(SECONDS_MAX) == 0
