"""`semel serve --console`: pages beside the broker, which end with it, however it ends."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from eventually import eventually
from forked import SECONDS_MAX
from semel_command import semel_failure, started


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_browser_is_let_in_and_the_console_ends_with_the_broker(tmp_path: Path, number: signal.Signals) -> None:
    process = started("serve", "--listen=127.0.0.1:0", f"--data={tmp_path}", "--console=127.0.0.1:0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("semel ready on")
    found = re.search(r"semel console on (http://127\.0\.0\.1:\d+)/enter", process.stdout.readline())
    assert found is not None
    assert answers(found[1])
    os.kill(process.pid, number)
    process.wait(SECONDS_MAX)
    assert eventually(lambda: not answers(found[1]))
    process.communicate()


def test_a_console_for_others_or_without_a_plain_listener_is_refused(tmp_path: Path) -> None:
    data = f"--data={tmp_path / 'data'}"
    assert "--insecure" in semel_failure("serve", data, "--listen=127.0.0.1:0", "--console=0.0.0.0:0")
    said = semel_failure("serve", data, "--listen=SASL_PLAINTEXT://127.0.0.1:0", "--console=127.0.0.1:0")
    assert "--command-config" in said
