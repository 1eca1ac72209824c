"""What `semel console` promises: an address that works, one line for what is wrong, and an end when it is asked to."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from forked import SECONDS_MAX
from semel_command import semel_failure, started


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


_LOADED = """
import sys
from semel.ui.console.server import Console
async def start(self):
    print(*sys.modules, flush=True)
    raise OSError(0, "enough was seen")
Console.start = start
from semel.ui.cli import main
main(["console", "--decisions=127.0.0.1:1", "--decisions-login-file", sys.argv[1]])
"""


def test_a_console_loads_no_broker_and_nothing_that_it_was_not_asked_to_show(tmp_path: Path) -> None:
    """Each of these would make the first page wait."""
    login = tmp_path / "login"
    login.write_text("console:secret\n")
    login.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, login], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    loaded = done.stdout.split()
    assert "semel.ui.console.site" in loaded, done.stderr
    dear = ("semel.log.broker", "semel.chaos", "semel.log.replica", "semel.log.storage", "semel.testing", "sqlalchemy")
    dear += ("email", "http.client", "importlib.metadata", "urllib.request")
    assert [name for name in loaded if name in dear or name.startswith("semel.wire.kafka.")] == []


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


def test_a_browser_is_let_in_although_nobody_reads_any_more_what_the_console_prints() -> None:
    """As after `semel console | head -1`; it is the same where the output goes to a disk that is full by now."""
    console = started("console", "--listen=127.0.0.1:0", "--bootstrap=127.0.0.1:1")
    try:
        assert console.stdout is not None
        address = console.stdout.readline().rpartition(" ")[2].strip()
        console.stdout.close()
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as page:
            assert (page.status, page.url) == (200, address.partition("enter")[0])
    finally:
        console.kill()
        console.wait()
